// The demonstration's text: documents that tools/make_corpus.py takes out of Debian packages (novels,
// dictionaries), and the list of those packages. Nothing is shipped: the script reads what apt-get has downloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/data/corpus/text_files.h"

namespace heddle::data {

/// The place where the script puts it, below the folder that a program is started in.
inline constexpr const char* kDemoFolder = "data/corpus";

/// The texts of a package.
struct CorpusPackage {
  std::string name;
  std::string licence;  // "GPL-2", "PostgreSQL, BSD-3-Clause"
  int64_t files = 0;
  int64_t text_bytes = 0;
};

struct DemoText {
  std::unique_ptr<DocumentSource> documents;
  std::vector<CorpusPackage> packages;
};

/// Reads `folder`/documents.jsonl and packages.json. ConfigError that names the script if they are not there.
DemoText open_demo_text(const std::string& folder = kDemoFolder);

/// A list of objects with the members' names as keys.
nlohmann::ordered_json json_of(const std::vector<CorpusPackage>& packages);
/// Throws what the JSON library throws if a key is missing or of another type.
std::vector<CorpusPackage> packages_of(const nlohmann::ordered_json& list);

}  // namespace heddle::data
