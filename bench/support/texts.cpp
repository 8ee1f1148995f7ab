#include "bench/support/texts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/data/corpus/demo_text.h"

namespace heddle::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostFileBytes = 1 << 24;
constexpr int kCharacters = 3500, kWords = 20'000;  // of everyday Chinese
constexpr size_t kDocumentBytes = 4000;

std::vector<std::string> english(int64_t most_bytes, const std::string& file) {
  const std::unique_ptr<data::DocumentSource> source =
      file.empty() ? data::open_demo_text().documents : data::open_text(file);
  std::vector<std::string> documents;
  data::Document document;
  for (int64_t bytes = 0; bytes < most_bytes && source->next(document);) {
    bytes += static_cast<int64_t>(document.text.size());
    documents.push_back(document.text);
  }
  return documents;
}

// A number below `count` by Zipf's law: the k-th is 1/k as likely as the first.
int zipf(double uniform, int count) { return std::min(count - 1, static_cast<int>(std::pow(count, uniform)) - 1); }

std::string character(int number) {
  const uint32_t code = 0x4e00 + static_cast<uint32_t>(number) * 5;  // over the whole block
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

std::vector<std::string> chinese(int64_t most_bytes) {
  const RandomKey key(17);
  uint64_t at = 0;
  std::vector<std::string> words(kWords);
  for (std::string& word : words) {
    const int lengths[] = {1, 2, 2, 2, 3, 4};
    for (int left = lengths[key.bits(at++) % 6]; left > 0; --left)
      word += character(zipf(key.uniform(at++), kCharacters));
  }
  std::vector<std::string> documents(1);
  for (int64_t bytes = 0; bytes < most_bytes;) {
    std::string& document = documents.back();
    const size_t before = document.size();
    for (uint64_t left = 3 + key.bits(at++) % 12; left > 0; --left) {
      document += words[static_cast<size_t>(zipf(key.uniform(at++), kWords))];
    }
    const uint64_t ending = key.bits(at++) % 12;
    document += ending < 7 ? "，" : ending < 11 ? "。" : "。\n";
    bytes += static_cast<int64_t>(document.size() - before);
    if (document.size() > kDocumentBytes) documents.emplace_back();
  }
  return documents;
}

std::vector<std::string> code(int64_t most_bytes) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HEDDLE_SOURCE_DIR) / "src")) {
    const std::string path = entry.path().string();
    if (path.ends_with(".cpp") || path.ends_with(".h")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> documents;
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    if (bytes >= most_bytes) break;
    documents.push_back(read_file(path, kMostFileBytes));
    bytes += static_cast<int64_t>(documents.back().size());
  }
  return documents;
}

std::vector<std::string> mixed(int64_t most_bytes, const std::vector<Text>& texts) {
  constexpr std::string_view kEmoji[] = {"👩‍👩‍👧‍👦 🇩🇪 👍🏽 ", "1️⃣ ❤️ ‼️ ",
                                         "🤷🏾‍♂️… ", "１２３　Ελληνικά Déjà vu "};
  std::vector<std::string> documents(1);
  std::vector<std::pair<size_t, size_t>> places(texts.size());  // document, byte
  int64_t bytes = 0;
  for (size_t turn = 0; bytes < most_bytes; ++turn) {
    const Text& text = texts[turn % texts.size()];
    auto& [number, begin] = places[turn % texts.size()];
    const std::string& from = text.documents[number % text.documents.size()];
    // To the end of a line, if there is one near, else of a Chinese sentence, else of the document.
    size_t end = std::min(from.find('\n', begin), from.size());
    if (end - begin > 400) end = std::min({end, from.find("。", begin + 200), from.find(' ', begin + 200)});
    std::string& document = documents.back();
    const size_t before = document.size();
    document += from.substr(begin, end - begin);
    document += turn % 5 == 4 ? kEmoji[turn / 5 % std::size(kEmoji)] : "\n";
    bytes += static_cast<int64_t>(document.size() - before);
    begin = end + 1;
    if (begin >= from.size()) ++number, begin = 0;
    // The mark of a sentence has three bytes: the next line begins with a character.
    while (begin > 0 && begin < from.size() && (from[begin] & 0xc0) == 0x80) ++begin;
    if (document.size() > kDocumentBytes) documents.emplace_back();
  }
  return documents;
}

}  // namespace

int64_t Text::size_bytes() const {
  int64_t bytes = 0;
  for (const std::string& document : documents) bytes += static_cast<int64_t>(document.size());
  return bytes;
}

std::vector<Text> make_texts(int64_t most_bytes, const std::string& file) {
  std::vector<Text> texts{
      {"english", english(most_bytes, file)}, {"chinese", chinese(most_bytes)}, {"code", code(most_bytes)}};
  texts.push_back({"mixed", mixed(most_bytes, texts)});
  return texts;
}

}  // namespace heddle::bench
