#include "heddle/data/tokenizer/tokenizer_train.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

constexpr int64_t kLeastPairCount = 2;
constexpr size_t kMostLearntTokenBytes = 64;  // keeps rulers of ===== and long names out of the vocabulary

struct Pair {
  TokenId left, right;
  int64_t count = 0;
  std::vector<uint32_t> words;  // that hold the pair, or held it
};

struct Learner {
  struct Span {
    uint32_t begin, size;
  };
  std::vector<TokenId> symbols;  // of all words, each shrinking in its place
  std::vector<Span> spans;
  std::vector<int64_t> counts;
  std::vector<Pair> pairs;
  std::unordered_map<uint64_t, uint32_t> pair_at;
  std::vector<uint32_t> grown;  // pairs whose count grew during the present merge

  uint32_t pair(TokenId left, TokenId right) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const auto [at, fresh] = pair_at.emplace(key, static_cast<uint32_t>(pairs.size()));
    if (fresh) pairs.push_back({left, right, 0, {}});
    return at->second;
  }

  // Adds `sign` times the word's count to each of its pairs.
  void count_pairs(uint32_t word, int64_t sign) {
    const auto [begin, size] = spans[word];
    for (uint32_t i = begin; i + 1 < begin + size; ++i) {
      pairs[pair(symbols[i], symbols[i + 1])].count += sign * counts[word];
    }
  }

  void merge_in(uint32_t word, TokenId left, TokenId right, TokenId joined) {
    auto& [begin, size] = spans[word];
    const uint32_t end = begin + size;
    bool holds = false;
    for (uint32_t i = begin; i + 1 < end && !holds; ++i) holds = symbols[i] == left && symbols[i + 1] == right;
    if (!holds) return;
    count_pairs(word, -1);
    uint32_t out = begin;
    for (uint32_t i = begin; i < end;) {
      const bool here = i + 1 < end && symbols[i] == left && symbols[i + 1] == right;
      symbols[out++] = here ? joined : symbols[i];
      i += here ? 2 : 1;
    }
    size = out - begin;
    count_pairs(word, 1);
    for (uint32_t i = begin; i + 1 < out; ++i) {
      if (symbols[i] != joined && symbols[i + 1] != joined) continue;
      const uint32_t at = pair(symbols[i], symbols[i + 1]);
      if (pairs[at].words.empty() || pairs[at].words.back() != word) pairs[at].words.push_back(word);
      grown.push_back(at);
    }
  }
};

}  // namespace

WordCounts::WordCounts(const char* split)
    : split_(split), pattern_(split_, "tokenizer training"), slots_(1 << 16) {}

void WordCounts::add(std::string_view text) {
  if (!is_valid_utf8(text)) return add(replace_invalid_utf8(text));
  size_t done = 0, begin = 0, end = 0;
  SplitPattern::Matches matches(pattern_, text, scratch_);
  while (matches.next(begin, end)) {
    if (begin > done) count(text.substr(done, begin - done));
    count(text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) count(text.substr(done));
}

void WordCounts::count(std::string_view word) {
  if (word.size() < 2 || word.size() > kMostWordBytes) return;
  const uint64_t hash = hash_bytes(word);
  size_t at = hash & (slots_.size() - 1);
  for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    Word& known = words_[slots_[at] - 1];
    if (known.hash == hash && bytes(known) == word) {
      ++known.count;
      return;
    }
  }
  slots_[at] = static_cast<uint32_t>(words_.size()) + 1;
  words_.push_back({hash, bytes_.size(), static_cast<uint32_t>(word.size()), 1});
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  if (words_.size() > kMostWords) {
    forget_rare();
  } else if (words_.size() * 2 > slots_.size()) {
    place_words(slots_.size() * 2);
  }
}

void WordCounts::place_words(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t i = 0; i < words_.size(); ++i) {
    size_t at = words_[i].hash & (slots - 1);
    while (slots_[at] != 0) at = (at + 1) & (slots - 1);
    slots_[at] = static_cast<uint32_t>(i) + 1;
  }
}

void WordCounts::forget_rare() {
  // The least count that leaves at most half the words.
  std::vector<int64_t> counts;
  counts.reserve(words_.size());
  for (const Word& word : words_) counts.push_back(word.count);
  std::nth_element(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(counts.size() / 2), counts.end());
  const int64_t forgotten = counts[counts.size() / 2];
  std::vector<Word> kept;
  std::vector<char> kept_bytes;
  for (Word word : words_) {
    if (word.count <= forgotten) continue;
    const std::string_view text = bytes(word);
    word.begin = kept_bytes.size();
    kept_bytes.insert(kept_bytes.end(), text.begin(), text.end());
    kept.push_back(word);
  }
  words_ = std::move(kept);
  bytes_ = std::move(kept_bytes);
  place_words(slots_.size());
}

TokenizerSpec train_tokenizer(const WordCounts& counts, int64_t vocabulary) {
  if (vocabulary < 257 || vocabulary > kMostTokens) {
    config_error("vocabulary of {} tokens: accepted are 257 (the bytes and {}) to {}", vocabulary, kEndOfText,
                 kMostTokens);
  }
  TokenizerSpec spec;
  spec.steps = {split_at(counts.split())};
  std::unordered_map<std::string, TokenId> ids;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(1, static_cast<char>(byte));
    ids.emplace(spec.tokens.back(), byte);
  }

  Learner learner;
  for (const WordCounts::Word& word : counts.words()) {
    const std::string_view bytes = counts.bytes(word);
    learner.spans.push_back({static_cast<uint32_t>(learner.symbols.size()), word.size_bytes});
    learner.counts.push_back(word.count);
    for (const char c : bytes) learner.symbols.push_back(static_cast<uint8_t>(c));
  }
  for (uint32_t word = 0; word < learner.spans.size(); ++word) {
    learner.count_pairs(word, 1);
    const auto [begin, size] = learner.spans[word];
    for (uint32_t i = begin; i + 1 < begin + size; ++i) {
      auto& where = learner.pairs[learner.pair(learner.symbols[i], learner.symbols[i + 1])].words;
      if (where.empty() || where.back() != word) where.push_back(word);
    }
  }

  struct Entry {
    int64_t count;
    TokenId left, right;
    uint32_t pair;
    bool operator<(const Entry& other) const {
      if (count != other.count) return count < other.count;
      return left != other.left ? left > other.left : right > other.right;
    }
  };
  std::priority_queue<Entry> commonest;
  const auto offer = [&](uint32_t at) {
    const Pair& pair = learner.pairs[at];
    if (pair.count >= kLeastPairCount) commonest.push({pair.count, pair.left, pair.right, at});
  };
  for (uint32_t at = 0; at < learner.pairs.size(); ++at) offer(at);

  while (static_cast<int64_t>(spec.tokens.size()) < vocabulary - 1 && !commonest.empty()) {
    const Entry top = commonest.top();
    commonest.pop();
    if (top.count != learner.pairs[top.pair].count) {
      offer(top.pair);
      continue;
    }
    std::string joined = spec.tokens[top.left] + spec.tokens[top.right];
    if (joined.size() > kMostLearntTokenBytes) continue;
    // Two ways of joining can give the same bytes: they are one token.
    const auto [at, fresh] = ids.emplace(joined, static_cast<TokenId>(spec.tokens.size()));
    if (fresh) spec.tokens.push_back(std::move(joined));
    spec.merges.emplace_back(top.left, top.right);
    const std::vector<uint32_t> words = std::move(learner.pairs[top.pair].words);
    learner.pairs[top.pair].words.clear();
    learner.grown.clear();
    for (const uint32_t word : words) learner.merge_in(word, top.left, top.right, at->second);
    std::sort(learner.grown.begin(), learner.grown.end());
    learner.grown.erase(std::unique(learner.grown.begin(), learner.grown.end()), learner.grown.end());
    for (const uint32_t pair : learner.grown) offer(pair);
  }
  AddedToken end;
  end.id = static_cast<TokenId>(spec.tokens.size());
  end.content = std::string(kEndOfText);
  spec.added.push_back(std::move(end));
  return spec;
}

}  // namespace heddle::data
