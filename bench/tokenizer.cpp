// How fast text becomes token ids, on one core: each tokenizer of tests/fixtures/tokenizers, which are published
// ones' forms, over prose, Chinese, code and all of them mixed.
//
//   bench_tokenizer [FILE.txt] [--vocabulary N] [--mib N] [--only SUBSTRING] [--json]
//
// FILE.txt stands for the prose. Byte-level tokenizers of merges get a vocabulary as large as a published one's,
// trained here on the prose, the Chinese and the code; the others keep their small one, which joins more bytes by
// bytes than a published one. Medians of five passes, behind one that fills the cache of words ("first").
#include "heddle/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/support/core_time.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "bench/support/texts.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::bench {
namespace {

using namespace data;
namespace fs = std::filesystem;

constexpr int kPasses = 5;

struct Line {
  double rate = 0, first = 0, bytes_a_token = 0;  // MB/s
};

Line measure(const Tokenizer& tokenizer, const Text& text) {
  std::vector<double> rates;
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  const auto bytes = static_cast<double>(text.size_bytes());
  Line line;
  for (int pass = 0; pass <= kPasses; ++pass) {
    const int64_t begin_ns = core_ns();
    int64_t tokens = 0;
    for (const std::string& document : text.documents) {
      ids.clear();
      encoder.encode(document, ids);
      tokens += static_cast<int64_t>(ids.size());
    }
    rates.push_back(bytes / static_cast<double>(core_ns() - begin_ns) * 1e3);
    line.bytes_a_token = bytes / static_cast<double>(tokens);
  }
  line.first = rates.front();
  rates.erase(rates.begin());
  std::sort(rates.begin(), rates.end());
  line.rate = rates[rates.size() / 2];
  return line;
}

// What the file says, and of merges as many as a published tokenizer has.
TokenizerSpec with_merges_of(const TokenizerSpec& trained, const TokenizerSpec& form) {
  if (form.joining != Joining::merges || !form.of_bytes) return form;
  TokenizerSpec spec = trained;
  spec.normalizer = form.normalizer;
  spec.steps = form.steps;
  spec.ignore_merges = form.ignore_merges;
  return spec;
}

std::vector<fs::path> tokenizer_files() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(HEDDLE_SOURCE_DIR) / "tests/fixtures/tokenizers")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".model") || entry.is_directory() || (name.ends_with(".json") && name != "ids.json"))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace
}  // namespace heddle::bench

int heddle::bench::run(Arguments& arguments) {
  std::string file, only;
  int64_t vocabulary = 32000;
  int mib = 4;
  bool json = false;
  arguments.place("FILE.txt", file);
  arguments.number("--vocabulary", vocabulary, 257);
  arguments.number("--mib", mib);
  arguments.word("--only", "SUBSTRING", only);
  arguments.flag("--json", json);
  arguments.read();
  const std::vector<Text> texts = make_texts(int64_t{mib} << 20, file);
  WordCounts words;
  for (const Text& text : texts) {
    if (text.kind == "mixed") continue;
    for (const std::string& document : text.documents) words.add(document);
  }
  const TokenizerSpec trained = train_tokenizer(words, vocabulary);
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  if (!json) {
    fmt::print("MB/s of one core (first pass)\n{:24}", "");
    for (const Text& text : texts) fmt::print(" {:>15}", text.kind);
    fmt::print("   {:>15}\n", "bytes a token");
  }
  for (const fs::path& path : tokenizer_files()) {
    const std::string name = path.filename().string();
    if (name.find(only) == std::string::npos) continue;
    const Tokenizer tokenizer(with_merges_of(trained, read_tokenizer(path.string())), path.string());
    if (!json) fmt::print("{:24}", name);
    std::string sizes;
    for (const Text& text : texts) {
      const Line line = measure(tokenizer, text);
      found.push_back({{"tokenizer", name},
                       {"text", text.kind},
                       {"vocabulary", tokenizer.vocabulary()},
                       {"mb_per_s", line.rate},
                       {"first_mb_per_s", line.first},
                       {"bytes_per_token", line.bytes_a_token}});
      if (!json) fmt::print(" {:6.1f} ({:6.1f})", line.rate, line.first), std::fflush(stdout);
      if (json) bench::so_far(found.dump());
      sizes += fmt::format(" {:4.2f}", line.bytes_a_token);
    }
    if (!json) fmt::print("  {}\n", sizes);
  }
  if (json) fmt::print("{}\n", found.dump());
  return 0;
}
