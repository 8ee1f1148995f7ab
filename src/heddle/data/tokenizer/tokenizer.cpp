#include "heddle/data/tokenizer/tokenizer.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

// Names under which published tokenizers keep the token between documents, most telling first.
constexpr std::string_view kEndNames[] = {kEndOfText, "<｜end▁of▁sentence｜>", "<|end_of_text|>", "</s>", "<eos>",
                                          "[EOS]"};

constexpr size_t kShortPieceBytes = 16;

// Unicode's White_Space.
bool is_white_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

// The begin of the white space that `text` ends with.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
    if (!is_white_space(first_letter(text.substr(begin)).code)) break;
    end = begin;
  }
  return end;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Letter letter = first_letter(text.substr(at));
    if (!is_white_space(letter.code)) break;
    at += letter.bytes;
  }
  return at;
}

TokenIds ids_of(const TokenizerSpec& spec, const std::string& place) {
  TokenIds ids;
  ids.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    const auto [at, fresh] = ids.emplace(spec.tokens[id], static_cast<TokenId>(id));
    if (!fresh) config_error("{}: ids {} and {} have the same bytes", place, at->second, id);
  }
  return ids;
}

}  // namespace

void Tokenizer::WholeSearch::add(const std::string& content, Found found) {
  if (content.empty()) return;
  const auto byte = static_cast<uint8_t>(content[0]);
  first[byte] = true;
  two.resize(1 << 16);
  const auto of_byte = two.begin() + (byte << 8);
  if (content.size() == 1) std::fill(of_byte, of_byte + 256, true);
  if (content.size() > 1) of_byte[static_cast<uint8_t>(content[1])] = true;
  lengths.push_back(content.size());
  others = others || !found.special;
  by_content.emplace(content, found);
}

void Tokenizer::WholeSearch::sort() {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
}

const Tokenizer::WholeSearch::Found* Tokenizer::WholeSearch::at(std::string_view text, size_t position,
                                                                size_t& length) const {
  const auto byte = static_cast<uint8_t>(text[position]);
  if (!first[byte]) return nullptr;
  if (position + 1 < text.size() && !two[byte << 8 | static_cast<uint8_t>(text[position + 1])]) return nullptr;
  for (const size_t tried : lengths) {
    if (tried > text.size() - position) continue;
    const auto found = by_content.find(text.substr(position, tried));
    if (found == by_content.end()) continue;
    length = tried;
    return &found->second;
  }
  return nullptr;
}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& place)
    : spec_(std::move(spec)),
      ids_(ids_of(spec_, place)),
      normalizer_(spec_.normalizer, place),
      pieces_(spec_.steps, place) {
  int64_t most = static_cast<int64_t>(spec_.tokens.size());
  for (const AddedToken& added : spec_.added) {
    if (added.id < 0 || added.id >= kMostTokens) {
      config_error("{}: added token id {} is not within 0 and {}", place, added.id, kMostTokens - 1);
    }
    if (added.content.empty()) config_error("{}: the added token of id {} is empty", place, added.id);
    most = std::max<int64_t>(most, added.id + 1);
  }
  for (const TokenId id : spec_.byte_tokens) most = std::max<int64_t>(most, id + 1);
  if (most > kMostTokens) config_error("{}: {} tokens, at most {} are accepted", place, most, kMostTokens);
  vocabulary_ = static_cast<int32_t>(most);
  const auto known = [&](TokenId id) { return id >= -1 && id < vocabulary_; };
  if (!known(spec_.unknown) || !known(spec_.end_of_text)) {
    config_error("{}: the unknown or the end-of-text token is none of the {}", place, vocabulary_);
  }
  for (const std::vector<TokenId>* ids : {&spec_.before, &spec_.after}) {
    for (const TokenId id : *ids) {
      if (!known(id) || id < 0) config_error("{}: a document's id {} is none of the {}", place, id, vocabulary_);
    }
  }
  if (spec_.joining != Joining::merges) spec_.scores.resize(spec_.tokens.size());
  if (spec_.joining == Joining::unigram) {
    unigram_.emplace(spec_, place);
  } else {
    pairs_.emplace(spec_, ids_, place);
  }

  const auto decoded = [&](std::string text) {
    if (!spec_.marks_spaces) return text;
    for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
      text.replace(at, kSpaceMark.size(), " ");
    return text;
  };
  for (const AddedToken& added : spec_.added) {
    std::string text = decoded(added.content);
    const auto [at, fresh] = decoded_.emplace(added.id, text);
    if (!fresh && at->second != text) config_error("{}: two added tokens have the id {}", place, added.id);
  }
  for (size_t byte = 0; byte < spec_.byte_tokens.size(); ++byte) {
    decoded_.emplace(spec_.byte_tokens[byte], std::string(1, static_cast<char>(byte)));
  }
  for (size_t id = 0; spec_.marks_spaces && id < spec_.tokens.size(); ++id) {
    if (spec_.tokens[id].find(kSpaceMark) != std::string::npos)
      decoded_.emplace(static_cast<TokenId>(id), decoded(spec_.tokens[id]));
  }
  index_added();

  end_of_text_ = spec_.end_of_text >= 0 ? spec_.end_of_text : named_end_of_text(spec_);
}

TokenId named_end_of_text(const TokenizerSpec& spec) {
  for (const std::string_view name : kEndNames) {
    for (const AddedToken& added : spec.added) {
      if (added.content == name) return added.id;
    }
  }
  return -1;
}

void Tokenizer::index_added() {
  SplitPattern::Scratch scratch;
  Normalizer::Held held;
  for (const AddedToken& added : spec_.added) {
    const WholeSearch::Found found{added.id, added.lstrip, added.rstrip, added.special};
    if (added.normalized) {
      added_later_.add(std::string(normalizer_.apply(added.content, scratch, held)), found);
    } else {
      added_first_.add(added.content, found);
    }
  }
  for (const std::string& token : spec_.whole) whole_.add(token, {ids_.at(token), false, false, false});
  for (WholeSearch* search : {&added_first_, &added_later_, &whole_}) search->sort();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto decoded = decoded_.find(id);
  if (decoded != decoded_.end()) return decoded->second;
  if (id < 0 || static_cast<size_t>(id) >= spec_.tokens.size()) return {};
  return spec_.tokens[id];
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

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

std::vector<TokenId> Encoder::encode(std::string_view text, AddedTokens added) {
  std::vector<TokenId> ids;
  encode(text, ids, added);
  return ids;
}

void Encoder::encode_document(std::string_view text, std::vector<TokenId>& ids) {
  const TokenizerSpec& spec = tokenizer_.spec_;
  ids.insert(ids.end(), spec.before.begin(), spec.before.end());
  encode(text, ids);
  ids.insert(ids.end(), spec.after.begin(), spec.after.end());
  const TokenId end = tokenizer_.end_of_text_;
  if (end >= 0 && (spec.after.empty() || spec.after.back() != end)) ids.push_back(end);
}

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids, AddedTokens added) {
  if (!tokenizer_.normalizer_.takes_any_bytes() && !is_valid_utf8(text)) {
    return encode(replace_invalid_utf8(text), ids, added);
  }
  around(tokenizer_.added_first_, text, added, ids,
         [&](std::string_view part, bool at_start) { encode_segment(part, at_start, added, ids); });
}

// The stretches between tokens that are found as a whole go to `between`. After add_vocabulary.rs of `tokenizers`.
template <class Between>
void Encoder::around(const Tokenizer::WholeSearch& search, std::string_view text, AddedTokens added,
                     std::vector<TokenId>& ids, const Between& between) {
  if (search.empty() || (added == AddedTokens::plain && !search.others)) return between(text, true);
  size_t begin = 0;  // of what is not yet given on
  for (size_t i = 0; i < text.size();) {
    size_t length = 0;
    const Tokenizer::WholeSearch::Found* found = search.at(text, i, length);
    if (found == nullptr) {
      ++i;
      continue;
    }
    size_t first = i, last = i + length;
    i = last;
    if (found->special && added == AddedTokens::plain) continue;
    if (found->lstrip) first = trailing_space(text.substr(0, first));
    if (found->rstrip) last += leading_space(text.substr(last));
    first = std::max(first, begin);
    if (first > begin) between(text.substr(begin, first - begin), begin == 0);
    ids.push_back(found->id);
    begin = std::max(begin, last);
  }
  if (begin < text.size()) between(text.substr(begin), begin == 0);
}

void Encoder::encode_segment(std::string_view text, bool at_start, AddedTokens added, std::vector<TokenId>& ids) {
  if (text.empty()) return;
  text = tokenizer_.normalizer_.apply(text, scratch_, held_);
  const Pieces::Use use = [&](std::string_view piece) { encode_piece(piece, ids); };
  const auto cut = [&](std::string_view part, bool first) {
    around(tokenizer_.whole_, part, added, ids, [&](std::string_view between, bool begins) {
      tokenizer_.pieces_.cut(between, at_start && first && begins, scratch_, use);
    });
  };
  around(tokenizer_.added_later_, text, added, ids, cut);
}

void Encoder::encode_piece(std::string_view piece, std::vector<TokenId>& ids) {
  // A short piece is found whole in the cache sooner than it is cut.
  const bool short_piece = tokenizer_.spec_.of_bytes && piece.size() <= kShortPieceBytes;
  if (!tokenizer_.pairs_ || short_piece || tokenizer_.pieces_.cuts_characters())
    return encode_word(piece, Word::whole, ids);
  size_t part = tokenizer_.pairs_->first_part(piece);
  if (part == piece.size()) return encode_word(piece, Word::whole, ids);
  if (tokenizer_.spec_.ignore_merges) {
    const auto at = tokenizer_.ids_.find(piece);
    if (at != tokenizer_.ids_.end()) return ids.push_back(at->second);
  }
  for (;; part = tokenizer_.pairs_->first_part(piece)) {
    encode_word(piece.substr(0, part), Word::part, ids);
    piece.remove_prefix(part);
    if (piece.empty()) return;
  }
}

void Encoder::encode_word(std::string_view word, Word kind, std::vector<TokenId>& ids) {
  if (word.size() == 1 && tokenizer_.spec_.of_bytes) {
    const TokenId id = tokenizer_.pairs_->of_byte(static_cast<uint8_t>(word[0]));
    if (id >= 0) ids.push_back(id);
    return;
  }
  if (word.size() > WordCache::kMostWordBytes) return join(word, kind, ids);
  // Equal bytes may be one token as a word, and several as a part.
  const bool apart = kind == Word::part && tokenizer_.spec_.ignore_merges;
  const uint64_t hash = hash_bytes(word) + (apart ? 1 : 0);
  uint32_t count = 0;
  if (const TokenId* known = cache_.find(word, hash, count)) {
    ids.insert(ids.end(), known, known + count);
    return;
  }
  const size_t begin = ids.size();
  join(word, kind, ids);
  cache_.add(word, hash, std::span(ids).subspan(begin));
}

void Encoder::join(std::string_view word, Word kind, std::vector<TokenId>& ids) {
  if (tokenizer_.unigram_) return tokenizer_.unigram_->encode(word, unigram_, ids);
  if (kind == Word::whole && tokenizer_.spec_.ignore_merges) {
    const auto at = tokenizer_.ids_.find(word);
    if (at != tokenizer_.ids_.end()) return ids.push_back(at->second);
  }
  tokenizer_.pairs_->join(word, pairs_, ids);
}

}  // namespace heddle::data
