#include "heddle/data/tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"

namespace heddle::data {
namespace {

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

constexpr size_t kMostShort = 128;  // symbols of a piece

// Bytes that text hardly has: vocabularies trained on text alone lack some (GPT-NeoX's, Falcon's). They are control
// characters, and bytes of no character or of planes without characters.
bool is_rare(int byte) {
  const bool control = (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
  return control || byte == 0xc0 || byte == 0xc1 || byte > 0xf0;
}

}  // namespace

BytePairs::BytePairs(const TokenizerSpec& spec, const TokenIds& ids, const std::string& place)
    : ids_(ids),
      of_bytes_(spec.of_bytes),
      fuse_unknown_(spec.fuse_unknown),
      unknown_(spec.unknown),
      byte_tokens_(spec.byte_tokens) {
  if (of_bytes_) {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      const auto at = ids_.find(std::string_view(&c, 1));
      if (at == ids_.end() && unknown_ < 0 && !is_rare(byte)) {
        config_error(
            "{}: byte {} has no token, and there is no unk_token: text with that byte would be lost. A "
            "byte-level vocabulary is to have all 256 (tokenizers: "
            "BpeTrainer(initial_alphabet=ByteLevel.alphabet()))",
            place, byte);
      }
      lacks_bytes_ = lacks_bytes_ || at == ids_.end();
      byte_ids_[byte] = at == ids_.end() ? unknown_ : at->second;
    }
  }
  std::vector<Merge> merges;
  if (spec.joining == Joining::merges) {
    add_listed(spec, merges, place);
  } else {
    add_scored(spec, merges, place);
  }
  for (const Merge& merge : merges) neighbours_.note(spec.tokens[merge.joined]);
  neighbours_.index();
  index(std::move(merges));
}

void BytePairs::add_listed(const TokenizerSpec& spec, std::vector<Merge>& merges, const std::string& place) const {
  const auto bytes_of = [&](TokenId id) {
    const bool known = id >= 0 && static_cast<size_t>(id) < spec.tokens.size();
    return known ? std::string_view(spec.tokens[id]) : std::string_view();
  };
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = spec.merges[rank];
    joined = bytes_of(left);
    joined += bytes_of(right);
    const auto at = ids_.find(joined);
    if (bytes_of(left).empty() || bytes_of(right).empty() || at == ids_.end()) {
      config_error("{}: merge {} joins ids {} and {} to what is no token", place, rank, left, right);
    }
    merges.push_back({pair_key(left, right), static_cast<int32_t>(rank), at->second});
  }
  std::vector<Merge> sorted = merges;
  std::sort(sorted.begin(), sorted.end(),
            [](const Merge& a, const Merge& b) { return a.pair != b.pair ? a.pair < b.pair : a.rank < b.rank; });
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end(),
                                        [](const Merge& a, const Merge& b) { return a.pair == b.pair; });
  if (twice != sorted.end()) {
    const auto [left, right] = spec.merges[twice->rank];
    config_error("{}: merge {} is there twice (ids {} and {})", place, (twice + 1)->rank, left, right);
  }
}

void BytePairs::add_scored(const TokenizerSpec& spec, std::vector<Merge>& merges, const std::string& place) const {
  std::vector<double> ranks(spec.scores);
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = spec.tokens[id];
    if (token.empty() || (id < spec.user_defined.size() && spec.user_defined[id])) continue;  // never joined
    const auto above = std::lower_bound(ranks.begin(), ranks.end(), spec.scores.at(id), std::greater<>());
    const auto rank = static_cast<int32_t>(above - ranks.begin());
    const auto step = [&](size_t at) { return of_bytes_ ? 1 : character_bytes(token, at); };
    const bool several = step(0) < token.size();
    for (size_t cut = step(0); cut < token.size(); cut += step(cut)) {
      const auto left = ids_.find(token.substr(0, cut)), right = ids_.find(token.substr(cut));
      if (left == ids_.end() || right == ids_.end()) continue;
      merges.push_back({pair_key(left->second, right->second), rank, static_cast<TokenId>(id)});
    }
    // SentencePiece would join a character that is no token by itself; no vocabulary that it trains has such.
    for (size_t at = 0; several && !of_bytes_ && at < token.size(); at += step(at)) {
      if (!ids_.contains(token.substr(at, step(at)))) {
        config_error("{}: the piece '{}' holds a character that is no piece", place, escaped(token, 40));
      }
    }
  }
}

size_t BytePairs::first_part(std::string_view piece) const {
  std::string_view before = piece.substr(0, character_bytes(piece, 0));
  for (size_t at = before.size(); at < piece.size();) {
    const std::string_view behind = piece.substr(at, character_bytes(piece, at));
    if (!neighbours_.stand_together(before, behind)) {
      // An unknown one may yet become one token with its neighbours, and what is dropped brings them together.
      const auto drops = [&](std::string_view character) {
        return of_bytes_ && lacks_bytes_ && std::any_of(character.begin(), character.end(), [&](char c) {
                 return byte_ids_[static_cast<uint8_t>(c)] < 0;
               });
      };
      const bool fuses = drops(before) || drops(behind) ||
                         (fuse_unknown_ && (of_bytes_ ? lacks_bytes_
                                                      : byte_tokens_.empty() && of_character(before) < 0 &&
                                                            of_character(behind) < 0));
      if (!fuses) return at;
    }
    before = behind;
    at += behind.size();
  }
  return piece.size();
}

void BytePairs::index(std::vector<Merge> merges) {
  slots_.assign(std::bit_ceil(2 * merges.size() + 2), Merge{});
  for (const Merge& merge : merges) {
    size_t at = mix_bits(merge.pair) & (slots_.size() - 1);
    while (slots_[at].pair != Merge{}.pair) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = merge;
  }
}

const BytePairs::Merge* BytePairs::find(TokenId left, TokenId right) const {
  if (left < 0 || right < 0) return nullptr;
  const uint64_t pair = pair_key(left, right);
  for (size_t at = mix_bits(pair) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == Merge{}.pair) return nullptr;
  }
}

TokenId BytePairs::of_character(std::string_view character) const {
  const auto at = ids_.find(character);
  return at == ids_.end() ? -1 : at->second;
}

void BytePairs::begin(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  const auto add = [&](TokenId id) {
    const auto place = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, place - 1, place + 1});
  };
  bool was_unknown = false;
  for (size_t at = 0; at < piece.size();) {
    if (of_bytes_) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(piece[at++])];
      if (id < 0) continue;
      const bool is_unknown = lacks_bytes_ && id == unknown_;
      if (!(is_unknown && was_unknown && fuse_unknown_)) add(id);
      was_unknown = is_unknown;
      continue;
    }
    const std::string_view character = piece.substr(at, character_bytes(piece, at));
    at += character.size();
    const TokenId id = of_character(character);
    if (id >= 0) {
      add(id);
    } else if (!byte_tokens_.empty()) {
      for (const char c : character) add(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (unknown_ >= 0 && !(was_unknown && fuse_unknown_)) {
      add(unknown_);
    }
    was_unknown = id < 0;
  }
  if (!symbols.empty()) symbols.back().after = -1;
}

void BytePairs::join(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  if (piece.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    config_error("a piece of text of {} bytes without a break can't be tokenized", piece.size());
  }
  begin(piece, scratch.symbols);
  if (scratch.symbols.empty()) return;
  scratch.symbols.size() <= kMostShort ? join_short(scratch, ids) : join_long(scratch, ids);
}

// The lowest rank is looked for anew after each joining: of so few, a sweep over numbers side by side is quicker
// than keeping a heap.
void BytePairs::join_short(Scratch& scratch, std::vector<TokenId>& ids) const {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  size_t count = scratch.symbols.size();
  scratch.ids.resize(count);
  scratch.ranks.resize(count);
  scratch.joined.resize(count);
  TokenId* const own = scratch.ids.data();
  int32_t* const ranks = scratch.ranks.data();
  TokenId* const joined = scratch.joined.data();
  for (size_t i = 0; i < count; ++i) own[i] = scratch.symbols[i].id;
  const auto look_up = [&](size_t left) {
    const Merge* merge = left + 1 < count ? find(own[left], own[left + 1]) : nullptr;
    ranks[left] = merge == nullptr ? kNone : merge->rank;
    joined[left] = merge == nullptr ? -1 : merge->joined;
  };
  for (size_t i = 0; i < count; ++i) look_up(i);
  while (true) {
    int32_t least = kNone;
    for (size_t i = 0; i < count; ++i) least = std::min(least, ranks[i]);
    if (least == kNone) break;
    const auto at = static_cast<size_t>(std::find(ranks, ranks + count, least) - ranks);
    own[at] = joined[at];
    for (size_t i = at + 1; i + 1 < count; ++i) {
      own[i] = own[i + 1];
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    --count;
    look_up(at);
    if (at > 0) look_up(at - 1);
  }
  ids.insert(ids.end(), own, own + count);
}

void BytePairs::join_long(Scratch& scratch, std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  using Candidate = Scratch::Candidate;
  // The smallest (rank, position) stands on top.
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto propose = [&](int32_t left) {
    const int32_t right = symbols[left].after;
    if (right < 0) return;
    const TokenId a = symbols[left].id, b = symbols[right].id;
    const Merge* merge = find(a, b);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, left, a, b, merge->joined});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) propose(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.position];
    // Stale if either side has merged since; a symbol merged into its neighbour has id -1.
    if (left.id != best.left || left.after < 0) continue;
    Scratch::Symbol& right = symbols[left.after];
    if (right.id != best.right) continue;
    left.id = best.joined;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[left.after].before = best.position;
    if (left.before >= 0) propose(left.before);
    propose(best.position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].after) {
    ids.push_back(symbols[i].id);
  }
}

}  // namespace heddle::data
