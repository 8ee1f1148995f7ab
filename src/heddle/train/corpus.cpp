#include "heddle/train/corpus.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>

#include "heddle/base/error.h"
#include "heddle/base/output_file.h"
#include "heddle/train/byte_hash.h"
#include "heddle/train/gzip_reader.h"
#include "heddle/train/markup.h"
#include "heddle/train/utf8.h"

namespace heddle::train {
namespace {

namespace fs = std::filesystem;

struct PackageTexts {
  const char* package;
  const char* folder;  // below the root
  const char* ending;  // of the files' names, possibly with ".gz" after it
  Markup markup;
  bool preferred;
};

// In order of preference: long-form prose first. One rendering of each; the packages have others.
constexpr std::array<PackageTexts, 5> kPackages{{
    {"anarchism", "usr/share/doc/anarchism/markdown", ".md", Markup::markdown, true},
    {"jargon-text", "usr/share/doc/jargon-text", ".txt", Markup::plain, true},
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
    std::error_code error;
    Found found{package, {}};
    for (fs::recursive_directory_iterator at(fs::path(options_.root) / texts.folder, error), end;
         !error && at != end; at.increment(error)) {
      const std::string path = at->path().string();
      std::error_code ignored;
      const bool plain = at->is_regular_file(ignored) && !at->is_symlink(ignored);
      if (plain && (ends_with(path, texts.ending) || ends_with(path, std::string(texts.ending) + ".gz"))) {
        found.files.push_back(path);
      }
    }
    // A folder lists its files in any order; the corpus has one.
    std::sort(found.files.begin(), found.files.end());
    for (const std::string& path : found.files) fingerprint_ = fingerprint_of(path, fingerprint_);
    if (!found.files.empty()) found_.push_back(std::move(found));
  }
  if (found_.empty()) {
    config_error(
        "no text to train on is installed; apt-get install {} gives some, or name a .txt or .jsonl of your own",
        fmt::join(preferred_packages(), " "));
  }
}

void Corpus::read() {
  if (is_read_) return;
  is_read_ = true;
  std::unordered_set<uint64_t> seen;
  int64_t total_bytes = 0;
  for (const Found& found : found_) {
    if (total_bytes >= options_.enough_bytes) break;
    const PackageTexts& texts = kPackages[found.package];
    CorpusPackage use;
    use.name = texts.package;
    use.licence = licence_of(options_.root, texts.package);
    for (const std::string& path : found.files) {
      const std::string raw = read_possibly_gzipped(path, kMostFileBytes);
      if (!is_valid_utf8(raw)) {
        ++use.broken_documents;
        continue;
      }
      const std::string text = without_repeats(plain_text(raw, texts.markup), seen, use.repeated_paragraphs);
      if (text.size() < kLeastTextBytes) continue;
      ++use.files;
      // Long files are cut at paragraphs, so that a share of documents can be held out evenly.
      size_t begin = 0;
      while (begin < text.size()) {
        size_t end = text.size() - begin <= 2 * kLeastDocumentBytes
                         ? std::string::npos
                         : text.find("\n\n", begin + kLeastDocumentBytes);
        end = std::min(end, text.size());
        documents_.push_back({text.substr(begin, end - begin), texts.package});
        use.text_bytes += static_cast<int64_t>(end - begin);
        begin = end == text.size() ? end : end + 2;
      }
    }
    total_bytes += use.text_bytes;
    packages_.push_back(std::move(use));
  }
  if (documents_.empty()) config_error("the installed documentation holds no text to train on");
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

}  // namespace heddle::train
