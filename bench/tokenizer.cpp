// How fast text becomes token ids, on one core: each tokenizer of tests/fixtures/tokenizers and one trained here
// with as many tokens as a published one, over the texts of the demonstration (data/packages) or a file of one's
// own.
//
//   bench_tokenizer [FILE.txt] [--vocabulary N]
//
// Medians of five passes, of which the first fills the cache of words and is left out.
#include "heddle/data/tokenizer/tokenizer.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/corpus/corpus.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace {

using namespace heddle;
using namespace heddle::data;

constexpr int64_t kMostBytes = 8 << 20;
constexpr int kPasses = 5;

// Time that this thread had a core, so that what else runs here doesn't count.
int64_t core_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void report(const std::string& name, const Tokenizer& tokenizer, const std::vector<std::string>& documents) {
  std::vector<double> rates;
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  double bytes = 0, first = 0;
  int64_t tokens = 0;
  for (int pass = 0; pass <= kPasses; ++pass) {
    const int64_t begin_ns = core_ns();
    bytes = 0;
    tokens = 0;
    for (const std::string& document : documents) {
      ids.clear();
      encoder.encode(document, ids);
      bytes += static_cast<double>(document.size());
      tokens += static_cast<int64_t>(ids.size());
    }
    const double rate = bytes / static_cast<double>(core_ns() - begin_ns) * 1e3;
    if (pass == 0) {
      first = rate;
    } else {
      rates.push_back(rate);
    }
  }
  std::sort(rates.begin(), rates.end());
  fmt::print("{:24} {:7.1f} MB/s (first pass {:6.1f})  {:5.2f} bytes a token\n", name, rates[rates.size() / 2],
             first, bytes / static_cast<double>(tokens));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::string file;
    int64_t vocabulary = 32000;
    for (int i = 1; i < count; ++i) {
      const std::string argument = arguments[i];
      if (argument == "--vocabulary" && i + 1 < count) {
        vocabulary = std::strtoll(arguments[++i], nullptr, 10);
      } else {
        file = argument;
      }
    }
    std::unique_ptr<DocumentSource> source;
    if (file.empty()) {
      source = std::make_unique<Corpus>();
    } else {
      source = open_text(file);
    }
    std::vector<std::string> documents;
    WordCounts words;
    Document document;
    for (int64_t bytes = 0; bytes < kMostBytes && source->next(document);) {
      bytes += static_cast<int64_t>(document.text.size());
      words.add(document.text);
      documents.push_back(document.text);
    }
    report(fmt::format("trained, {} tokens", vocabulary), Tokenizer(train_tokenizer(words, vocabulary)), documents);
    const std::filesystem::path fixtures = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/fixtures/tokenizers";
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".model") || entry.is_directory() || (name.ends_with(".json") && name != "ids.json"))
        paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::filesystem::path& path : paths) {
      report(path.filename().string(), Tokenizer(read_tokenizer(path.string()), path.string()), documents);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "bench_tokenizer: {}\n", error.what());
    return 1;
  }
  return 0;
}
