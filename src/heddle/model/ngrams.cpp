#include "heddle/model/ngrams.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <mutex>

#include "heddle/base/error.h"

namespace heddle::model {

namespace {

// The numbers are those of splitmix64 (Steele et al., OOPSLA 2014).
constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15;

uint64_t split_mix(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d <= n / d; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

// The first `count` primes from `base` on. A run asks for the same ones in each microbatch.
std::vector<int64_t> primes_from(int64_t base, size_t count) {
  static std::mutex mutex;
  static std::map<int64_t, std::vector<int64_t>> known;
  const std::lock_guard lock(mutex);
  std::vector<int64_t>& primes = known[base];
  for (int64_t n = primes.empty() ? base : primes.back() + 1; primes.size() < count; ++n) {
    if (is_prime(n)) primes.push_back(n);
  }
  return {primes.begin(), primes.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

NgramHashes ngram_hashes(const NgramSizes& s) {
  constexpr uint64_t kApart = 10007;  // seeds of layers
  NgramHashes hashes;
  const int64_t most = std::numeric_limits<int64_t>::max() / std::max<int64_t>(1, s.vocabulary);
  const auto half = static_cast<uint64_t>(std::max<int64_t>(1, most / 2));
  const uint64_t seed = static_cast<uint64_t>(s.seed) + kApart * static_cast<uint64_t>(s.index);
  for (int64_t i = 0; i < s.size; ++i) {
    const uint64_t drawn = split_mix(seed + kSplitMixStep * static_cast<uint64_t>(i + 1)) % half;
    hashes.multipliers.push_back(static_cast<int64_t>(2 * drawn + 1));
  }
  const auto each = static_cast<size_t>(s.each()), before = static_cast<size_t>(s.index) * each;
  const std::vector<int64_t> primes = primes_from(s.base, before + each);
  for (size_t h = 0; h < each; ++h) {
    hashes.first.push_back(hashes.total);
    hashes.rows.push_back(primes[before + h]);
    hashes.total += primes[before + h];
  }
  return hashes;
}

std::vector<int64_t> ngram_layers_of(const ModelConfig& c) {
  std::vector<int64_t> layers;
  const char *at = c.ngram_layers.data(), *end = at + c.ngram_layers.size();
  while (at != end) {
    int64_t number = 0;
    const auto [stop, wrong] = std::from_chars(at, end, number);
    const bool goes_on = stop != end && *stop == ',' && stop + 1 != end;
    if (wrong != std::errc() || (stop != end && !goes_on) || number < 1 || number > c.num_hidden_layers) {
      config_error(
          "model.ngram_layers is '{}', accepted: numbers of layers from 1 to {} (model.num_hidden_layers) with "
          "commas "
          "between",
          c.ngram_layers, c.num_hidden_layers);
    }
    layers.push_back(number - 1);
    at = goes_on ? stop + 1 : end;
  }
  std::sort(layers.begin(), layers.end());
  if (std::adjacent_find(layers.begin(), layers.end()) != layers.end())
    config_error("model.ngram_layers is '{}', accepted: each layer once", c.ngram_layers);
  return layers;
}

void validate_ngrams(const ModelConfig& c) {
  constexpr int64_t kMostTables = 1 << 16;
  const int64_t each = ngram_sizes(c, 0).each(), layers = std::ssize(ngram_layers_of(c));
  if (!c.has_gated_streams()) {
    config_error(
        "model.ngram_layers needs model.hyper_connections of the kind \"gated\": "
        "embeddings of n-grams are added to streams");
  }
  if (each * layers > kMostTables) {
    config_error("model.ngram_heads is {}, and {} layers have {} tables of n-grams together; accepted: up to {}",
                 c.ngram_heads, layers, each * layers, kMostTables);
  }
  if (c.ngram_width() % each != 0) {
    config_error(
        "model.{} is {}, not a multiple of the {} rows that a token has (model.ngram_heads × "
        "(model.ngram_size − 1))",
        c.ngram_embedding_size > 0 ? "ngram_embedding_size" : "hidden_size", c.ngram_width(), each);
  }
  if (c.ngram_end_token >= c.vocab_size) {
    config_error("model.ngram_end_token is {}, outside of model.vocab_size = {}", c.ngram_end_token, c.vocab_size);
  }
  if (each > std::numeric_limits<int32_t>::max() / c.ngram_vocab_size ||
      ngram_rows(c, layers - 1) > std::numeric_limits<int32_t>::max()) {
    config_error("model.ngram_vocab_size is {}, and {} tables of a layer have 2^31 rows or more together",
                 c.ngram_vocab_size, each);
  }
  if (c.ngram_parts > ngram_rows(c, 0)) {
    config_error("model.ngram_parts is {}, more than the {} rows of a layer's tables", c.ngram_parts,
                 ngram_rows(c, 0));
  }
}

int64_t ngram_index(const ModelConfig& config, int64_t layer) {
  if (!config.has_ngrams()) return -1;
  const std::vector<int64_t> layers = ngram_layers_of(config);
  const auto at = std::find(layers.begin(), layers.end(), layer);
  return at == layers.end() ? -1 : at - layers.begin();
}

NgramSizes ngram_sizes(const ModelConfig& c, int64_t index) {
  return {.vocabulary = c.vocab_size,
          .size = c.ngram_size,
          .heads = c.ngram_heads,
          .base = c.ngram_vocab_size,
          .seed = c.ngram_seed,
          .index = index};
}

int64_t ngram_rows(const ModelConfig& c, int64_t index) {
  const int64_t multiple = c.ngram_vocab_multiple;
  return (ngram_hashes(ngram_sizes(c, index)).total + multiple - 1) / multiple * multiple;
}

}  // namespace heddle::model
