#include "heddle/data/corpus/demo_text.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"

namespace heddle::data {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

DemoText open_demo_text(const std::string& folder) {
  constexpr int64_t kMostListBytes = 1 << 20;
  const std::string documents = (fs::path(folder) / "documents.jsonl").string(),
                    list = (fs::path(folder) / "packages.json").string();
  if (!fs::exists(documents) || !fs::exists(list)) {
    config_error(
        "{} has no text of the demonstration: ./dev setup makes it from Debian packages (tools/make_corpus.py, on "
        "packages that are installed), or name a .txt or .jsonl of your own",
        folder);
  }
  try {
    return {open_text(documents), packages_of(Json::parse(read_file(list, kMostListBytes)))};
  } catch (const Json::exception& error) {
    config_error("{}: no list of packages: {}", list, error.what());
  }
}

Json json_of(const std::vector<CorpusPackage>& packages) {
  Json list = Json::array();
  for (const CorpusPackage& p : packages)
    list.push_back({{"name", p.name}, {"licence", p.licence}, {"files", p.files}, {"text_bytes", p.text_bytes}});
  return list;
}

std::vector<CorpusPackage> packages_of(const Json& list) {
  std::vector<CorpusPackage> packages;
  for (const Json& p : list) {
    packages.push_back({p.at("name").get<std::string>(), p.at("licence").get<std::string>(),
                        p.at("files").get<int64_t>(), p.at("text_bytes").get<int64_t>()});
  }
  return packages;
}

}  // namespace heddle::data
