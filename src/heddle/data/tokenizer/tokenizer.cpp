#include "heddle/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

// Names under which published tokenizers keep the token between documents, most telling first.
constexpr std::string_view kEndNames[] = {kEndOfText, "<｜end▁of▁sentence｜>", "<|end_of_text|>", "</s>", "<eos>"};

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& place) : spec_(std::move(spec)) {
  int64_t most = static_cast<int64_t>(spec_.tokens.size());
  for (const AddedToken& added : spec_.added) {
    if (added.id < 0 || added.id >= kMostTokens) {
      config_error("{}: added token id {} is not within 0 and {}", place, added.id, kMostTokens - 1);
    }
    if (added.content.empty()) config_error("{}: the added token of id {} is empty", place, added.id);
    most = std::max<int64_t>(most, added.id + 1);
  }
  if (most > kMostTokens) config_error("{}: {} tokens, at most {} are accepted", place, most, kMostTokens);
  vocabulary_ = static_cast<int32_t>(most);

  ids_.reserve(spec_.tokens.size());
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& bytes = spec_.tokens[id];
    if (bytes.empty()) continue;
    const auto [at, fresh] = ids_.emplace(bytes, static_cast<TokenId>(id));
    if (!fresh) config_error("{}: ids {} and {} have the same bytes", place, at->second, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto at = ids_.find(std::string_view(&c, 1));
    if (at == ids_.end())
      config_error("{}: byte {} has no token; a byte-level vocabulary has all 256", place, byte);
    byte_ids_[static_cast<size_t>(byte)] = at->second;
  }
  merges_.reserve(spec_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto [left, right] = spec_.merges[rank];
    const std::string_view left_bytes = token_bytes(left), right_bytes = token_bytes(right);
    joined.assign(left_bytes);
    joined += right_bytes;
    const auto at = ids_.find(joined);
    if (left_bytes.empty() || right_bytes.empty() || at == ids_.end()) {
      config_error("{}: merge {} joins ids {} and {} to what is no token", place, rank, left, right);
    }
    if (!merges_.emplace(pair_key(left, right), Merge{static_cast<int32_t>(rank), at->second}).second) {
      config_error("{}: merge {} is there twice (ids {} and {})", place, rank, left, right);
    }
  }
  for (size_t i = 0; i < spec_.splits.size(); ++i) {
    splits_.emplace_back(spec_.splits[i], i < spec_.split_places.size() ? spec_.split_places[i] : place);
  }
  for (const AddedToken& added : spec_.added) {
    const auto [at, fresh] = added_text_.emplace(added.id, added.content);
    if (!fresh && at->second != added.content) config_error("{}: two added tokens have the id {}", place, added.id);
  }
  index_added(false, added_first_);
  index_added(true, added_later_);

  for (const std::string_view name : kEndNames) {
    for (const AddedToken& added : spec_.added) {
      if (end_of_text_ < 0 && added.content == name) end_of_text_ = added.id;
    }
  }
}

void Tokenizer::index_added(bool normalized, AddedSearch& search) {
  for (const AddedToken& added : spec_.added) {
    if (added.normalized != normalized) continue;
    search.first[static_cast<uint8_t>(added.content[0])] = true;
    search.lengths.push_back(added.content.size());
    search.by_content.emplace(added.content, added.id);
  }
  std::sort(search.lengths.begin(), search.lengths.end(), std::greater<>());
  search.lengths.erase(std::unique(search.lengths.begin(), search.lengths.end()), search.lengths.end());
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto added = added_text_.find(id);
  if (added != added_text_.end()) return added->second;
  if (id < 0 || static_cast<size_t>(id) >= spec_.tokens.size()) return {};
  return spec_.tokens[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_) {
      config_error("token {} at position {}: the vocabulary has {} tokens", ids[i], i, vocabulary_);
    }
    text += token_bytes(ids[i]);
  }
  return text;
}

// Ids of words met before. Open addressing over one arena of bytes and one of ids; emptied when full, so that the
// memory is bounded whatever the text.
class Encoder::WordCache {
 public:
  static constexpr size_t kMostWordBytes = 64;

  WordCache() : slots_(kSlots) {}

  /// The ids of the word, or null.
  const TokenId* find(std::string_view word, uint64_t hash, uint32_t& count) const {
    for (size_t at = hash & (kSlots - 1);; at = (at + 1) & (kSlots - 1)) {
      const Slot& slot = slots_[at];
      if (slot.word_bytes == 0) return nullptr;
      if (slot.hash == hash && slot.word_bytes == word.size() &&
          std::memcmp(bytes_.data() + slot.word_begin, word.data(), word.size()) == 0) {
        count = slot.ids_count;
        return ids_.data() + slot.ids_begin;
      }
    }
  }

  void add(std::string_view word, uint64_t hash, std::span<const TokenId> ids) {
    if (used_ == kSlots / 2) {
      std::fill(slots_.begin(), slots_.end(), Slot{});
      bytes_.clear();
      ids_.clear();
      used_ = 0;
    }
    size_t at = hash & (kSlots - 1);
    while (slots_[at].word_bytes != 0) at = (at + 1) & (kSlots - 1);
    slots_[at] = {hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(ids_.size()),
                  static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
    bytes_.insert(bytes_.end(), word.begin(), word.end());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++used_;
  }

 private:
  static constexpr size_t kSlots = 1 << 17;
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0, ids_begin = 0, word_bytes = 0, ids_count = 0;
  };
  std::vector<Slot> slots_;
  std::vector<char> bytes_;
  std::vector<TokenId> ids_;
  size_t used_ = 0;
};

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), cache_(std::make_unique<WordCache>()) {}
Encoder::~Encoder() = default;

std::vector<TokenId> Encoder::encode(std::string_view text, AddedTokens added) {
  std::vector<TokenId> ids;
  encode(text, ids, added);
  return ids;
}

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids, AddedTokens added) {
  if (!is_valid_utf8(text)) return encode(replace_invalid_utf8(text), ids, added);
  if (added == AddedTokens::plain) return encode_segment(text, ids);
  encode_around(tokenizer_.added_first_, &tokenizer_.added_later_, text, ids);
}

void Encoder::encode_around(const Tokenizer::AddedSearch& search, const Tokenizer::AddedSearch* later,
                            std::string_view text, std::vector<TokenId>& ids) {
  const auto between = [&](std::string_view part) {
    if (part.empty()) return;
    if (later != nullptr) return encode_around(*later, nullptr, part, ids);
    encode_segment(part, ids);
  };
  if (search.lengths.empty()) return between(text);
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    if (!search.first[static_cast<uint8_t>(text[i])]) {
      ++i;
      continue;
    }
    size_t length = 0;
    for (const size_t tried : search.lengths) {
      if (tried > text.size() - i) continue;
      const auto at = search.by_content.find(text.substr(i, tried));
      if (at == search.by_content.end()) continue;
      between(text.substr(begin, i - begin));
      ids.push_back(at->second);
      length = tried;
      break;
    }
    i += std::max<size_t>(length, 1);
    if (length > 0) begin = i;
  }
  between(text.substr(begin));
}

void Encoder::encode_segment(std::string_view text, std::vector<TokenId>& ids) {
  if (text.empty()) return;
  if (tokenizer_.spec_.add_prefix_space && text[0] != ' ') {
    std::string spaced = " ";
    spaced += text;
    return split(0, spaced, ids);
  }
  split(0, text, ids);
}

void Encoder::split(size_t level, std::string_view piece, std::vector<TokenId>& ids) {
  if (level == tokenizer_.splits_.size()) return encode_word(piece, ids);
  const SplitPattern& pattern = tokenizer_.splits_[level];
  size_t done = 0, begin = 0, end = 0;
  while (pattern.find(piece, done, scratch_, begin, end)) {
    if (begin > done) split(level + 1, piece.substr(done, begin - done), ids);
    split(level + 1, piece.substr(begin, end - begin), ids);
    done = end;
  }
  if (done < piece.size()) split(level + 1, piece.substr(done), ids);
}

void Encoder::encode_word(std::string_view word, std::vector<TokenId>& ids) {
  if (word.size() == 1) {
    ids.push_back(tokenizer_.byte_ids_[static_cast<uint8_t>(word[0])]);
    return;
  }
  if (tokenizer_.spec_.ignore_merges) {
    const auto at = tokenizer_.ids_.find(word);
    if (at != tokenizer_.ids_.end()) {
      ids.push_back(at->second);
      return;
    }
  }
  if (word.size() > WordCache::kMostWordBytes) return merge(word, ids);
  const uint64_t hash = hash_bytes(word);
  uint32_t count = 0;
  if (const TokenId* known = cache_->find(word, hash, count)) {
    ids.insert(ids.end(), known, known + count);
    return;
  }
  const size_t begin = ids.size();
  merge(word, ids);
  cache_->add(word, hash, std::span(ids).subspan(begin));
}

void Encoder::merge(std::string_view word, std::vector<TokenId>& ids) {
  if (word.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    config_error("a piece of text of {} bytes without a break can't be tokenized", word.size());
  }
  const auto size = static_cast<int32_t>(word.size());
  symbols_.resize(word.size());
  heap_.clear();
  // The smallest (rank, position) stands on top.
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto propose = [&](int32_t left) {
    const int32_t right = symbols_[static_cast<size_t>(left)].after;
    if (right < 0) return;
    const TokenId a = symbols_[static_cast<size_t>(left)].id, b = symbols_[static_cast<size_t>(right)].id;
    const auto at = tokenizer_.merges_.find(pair_key(a, b));
    if (at == tokenizer_.merges_.end()) return;
    heap_.push_back({at->second.rank, left, a, b, at->second.joined});
    std::push_heap(heap_.begin(), heap_.end(), later);
  };
  for (int32_t i = 0; i < size; ++i) {
    const TokenId id = tokenizer_.byte_ids_[static_cast<uint8_t>(word[static_cast<size_t>(i)])];
    symbols_[static_cast<size_t>(i)] = {id, i - 1, i + 1 < size ? i + 1 : -1};
  }
  for (int32_t i = 0; i + 1 < size; ++i) propose(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(best.position)];
    // Stale if either side has merged since; a symbol merged into its neighbour has id -1.
    if (left.id != best.left || left.after < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.after)];
    if (right.id != best.right) continue;
    left.id = best.joined;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbols_[static_cast<size_t>(left.after)].before = best.position;
    if (left.before >= 0) propose(left.before);
    propose(best.position);
  }
  for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].after) {
    ids.push_back(symbols_[static_cast<size_t>(i)].id);
  }
}

}  // namespace heddle::data
