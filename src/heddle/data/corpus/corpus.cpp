#include "heddle/data/corpus/corpus.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/markup.h"
#include "heddle/data/corpus/packed_reader.h"
#include "heddle/data/corpus/r_strings.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

struct PackageTexts {
  const char* package;
  const char* folder;  // below the root
  const char* ending;  // of the files' names, possibly with ".gz" after it
  Markup markup;
  bool preferred;
};

// In order of preference: prose on many things first. One rendering of each; the packages have others.
constexpr std::array<PackageTexts, 7> kPackages{{
    {"r-cran-janeaustenr", "usr/lib/R/site-library/janeaustenr/data", ".rdb", Markup::plain, true},
    {"dict-gcide", "usr/share/dictd", "gcide.dict.dz", Markup::dictionary, true},
    {"jargon-text", "usr/share/doc/jargon-text", ".txt", Markup::plain, true},
    {"dict-foldoc", "usr/share/dictd", "foldoc.dict.dz", Markup::dictionary, true},
    {"postgresql-doc-15", "usr/share/doc/postgresql-doc-15/html", ".html", Markup::html, false},
    {"perl-doc", "usr/share/perl/5.36.0/pod", ".pod", Markup::pod, false},
    {"python3.11-doc", "usr/share/doc/python3.11/html/_sources", ".rst.txt", Markup::rst, false},
}};

constexpr int64_t kMostFileBytes = 64 << 20;
constexpr size_t kLeastComparedBytes = 64;  // shorter paragraphs (headings, "See also") may repeat
constexpr size_t kLeastTextBytes = 256;     // of a file

bool ends_with(const std::string& name, const std::string& ending) {
  return name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

std::vector<std::string> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    std::error_code ignored;
    const bool plain = at->is_regular_file(ignored) && !at->is_symlink(ignored);
    if (plain && (ends_with(path, ending) || ends_with(path, ending + ".gz"))) files.push_back(path);
  }
  return files;
}

// What a file holds, before its markup is taken out.
std::vector<std::string> raw_texts(const std::string& path) {
  if (ends_with(path, ".rdb")) return r_texts(read_file(path, kMostFileBytes), path, kMostFileBytes);
  return {read_possibly_packed(path, kMostFileBytes)};
}

// Whether a text is UTF-8, or all but a few characters of it, which are replaced.
bool mended(std::string& text) {
  constexpr size_t kBytesABrokenOne = 10'000;
  if (is_valid_utf8(text)) return true;
  std::string whole = replace_invalid_utf8(text);
  const auto marks = [](std::string_view in) {
    size_t count = 0;
    for (size_t at = in.find("\xef\xbf\xbd"); at != std::string_view::npos; at = in.find("\xef\xbf\xbd", at + 3))
      ++count;
    return count;
  };
  if ((marks(whole) - marks(text)) * kBytesABrokenOne > text.size()) return false;
  text = std::move(whole);
  return true;
}

// Documents from all over, in their order, so that they come to no more than `most_bytes`.
void thin_out(std::vector<Document>& documents, int64_t most_bytes) {
  double total = 0, seen = 0, kept = 0;
  for (const Document& document : documents) total += static_cast<double>(document.text.size());
  const double share = static_cast<double>(most_bytes) / total;
  if (share >= 1) return;
  std::erase_if(documents, [&](const Document& document) {
    const auto bytes = static_cast<double>(document.text.size());
    seen += bytes;
    if (kept + bytes > seen * share) return true;
    kept += bytes;
    return false;
  });
}

// The text without paragraphs seen before.
std::string without_repeats(std::string_view text, std::unordered_set<uint64_t>& seen, int64_t& repeated) {
  std::string kept;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    const std::string_view paragraph = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    if (paragraph.size() >= kLeastComparedBytes && !seen.insert(hash_bytes(paragraph)).second) {
      ++repeated;
      continue;
    }
    if (!kept.empty()) kept += "\n\n";
    kept += paragraph;
  }
  return kept;
}

// Long texts are cut at paragraphs, so that a share of documents can be held out evenly.
void cut(const std::string& text, const std::string& source, std::vector<Document>& documents) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.size() - begin <= 2 * kLeastDocumentBytes ? std::string::npos
                                                                : text.find("\n\n", begin + kLeastDocumentBytes);
    end = std::min(end, text.size());
    documents.push_back({text.substr(begin, end - begin), source});
    begin = end == text.size() ? end : end + 2;
  }
}

}  // namespace

std::vector<std::string> Corpus::preferred_packages() {
  std::vector<std::string> names;
  for (const PackageTexts& texts : kPackages) {
    if (texts.preferred) names.emplace_back(texts.package);
  }
  return names;
}

Corpus::Corpus(const CorpusOptions& options) : options_(options) {
  fingerprint_ = mix_bits(static_cast<uint64_t>(options_.enough_bytes));
  for (size_t package = 0; package < kPackages.size(); ++package) {
    const PackageTexts& texts = kPackages[package];
    Found found{package, "", {}};
    for (const std::string& root : options_.roots) {
      found.root = root;
      found.files = files_in(fs::path(root) / texts.folder, texts.ending);
      if (!found.files.empty()) break;
    }
    // A folder lists its files in any order; the corpus has one.
    std::sort(found.files.begin(), found.files.end());
    for (const std::string& path : found.files) fingerprint_ = fingerprint_of(path, fingerprint_);
    if (!found.files.empty()) found_.push_back(std::move(found));
  }
  if (found_.empty()) {
    config_error(
        "no text to train on is in {}; ./dev setup puts the packages {} there, or name a .txt or .jsonl of your "
        "own",
        fmt::join(options_.roots, " or "), fmt::join(preferred_packages(), ", "));
  }
}

void Corpus::read() {
  if (is_read_) return;
  is_read_ = true;
  std::unordered_set<uint64_t> seen;
  int64_t total_bytes = 0;
  for (const Found& found : found_) {
    if (total_bytes >= options_.enough_bytes - options_.enough_bytes / 50) break;  // whole documents rarely fill it
    const PackageTexts& texts = kPackages[found.package];
    CorpusPackage use;
    use.name = texts.package;
    use.licence = licence_of(found.root, texts.package);
    std::vector<Document> documents;
    for (const std::string& path : found.files) {
      for (std::string& raw : raw_texts(path)) {
        if (!mended(raw)) {
          ++use.broken_documents;
          continue;
        }
        const std::string text = without_repeats(plain_text(raw, texts.markup), seen, use.repeated_paragraphs);
        if (text.size() < kLeastTextBytes) continue;
        ++use.files;
        cut(text, texts.package, documents);
      }
    }
    thin_out(documents, std::min(options_.enough_bytes / 3, options_.enough_bytes - total_bytes));
    for (Document& document : documents) {
      use.text_bytes += static_cast<int64_t>(document.text.size());
      documents_.push_back(std::move(document));
    }
    total_bytes += use.text_bytes;
    packages_.push_back(std::move(use));
  }
  if (documents_.empty()) config_error("the packages found hold no text to train on");
}

bool Corpus::next(Document& document) {
  read();
  if (next_ == documents_.size()) return false;
  document = documents_[next_++];
  return true;
}

double Corpus::progress() const {
  return documents_.empty() ? 0 : static_cast<double>(next_) / static_cast<double>(documents_.size());
}

const std::vector<CorpusPackage>& Corpus::packages() {
  read();
  return packages_;
}

int64_t Corpus::text_bytes() {
  int64_t total = 0;
  for (const CorpusPackage& package : packages()) total += package.text_bytes;
  return total;
}

std::string licence_of(const std::string& root, const std::string& package) {
  const std::string path = (fs::path(root) / "usr/share/doc" / package / "copyright").string();
  const std::string elsewhere = "see /usr/share/doc/" + package + "/copyright";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return elsewhere;
  const std::string text = read_file(path, kMostFileBytes);
  // The machine-readable form: "License: NAME" begins each stanza; the first speak for most files.
  constexpr std::string_view kKey = "\nLicense: ";
  std::vector<std::string> names;
  for (size_t at = text.find(kKey); at != std::string::npos && names.size() < 2; at = text.find(kKey, at + 1)) {
    const size_t begin = at + kKey.size();
    std::string name = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
    while (!name.empty() && (name.back() == ' ' || name.back() == '\r')) name.pop_back();
    const bool is_name = !name.empty() && name.size() <= 60 && is_valid_utf8(name);
    if (is_name && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (!names.empty() && text.find("Format: ") != std::string::npos)
    return fmt::format("{}", fmt::join(names, ", "));
  // Free text, with a few well-known phrases.
  static constexpr std::array<std::pair<const char*, const char*>, 4> kPhrases{{
      {"public domain", "public domain"},
      {"PYTHON SOFTWARE FOUNDATION LICENSE", "PSF"},
      {"GNU General Public License", "GPL"},
      {"GNU Free Documentation License", "GFDL"},
  }};
  for (const auto& [phrase, name] : kPhrases) {
    if (text.find(phrase) != std::string::npos) return name;
  }
  return elsewhere;
}

}  // namespace heddle::data
