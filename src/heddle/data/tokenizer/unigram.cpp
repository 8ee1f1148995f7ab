#include "heddle/data/tokenizer/unigram.h"

#include <algorithm>
#include <bit>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"

namespace heddle::data {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(const TokenizerSpec& spec, const std::string& place)
    : scores_(spec.scores),
      user_defined_(spec.user_defined),
      byte_tokens_(spec.byte_tokens),
      unknown_(spec.unknown),
      single_(spec.single_precision) {
  if (unknown_ < 0) config_error("{}: a unigram model needs an unknown token", place);
  user_defined_.resize(spec.tokens.size());
  size_t bytes = 1;
  bool any = false;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    bytes += spec.tokens[id].size();
    if (user_defined_[id]) continue;
    least_ = any ? std::min(least_, scores_.at(id)) : scores_.at(id);
    most_ = any ? std::max(most_, scores_.at(id)) : scores_.at(id);
    any = true;
  }
  edges_.assign(std::bit_ceil(2 * bytes), Edge{});
  id_at_.assign(1, -1);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    uint32_t node = 0;
    for (const char c : spec.tokens[id]) {
      const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
      size_t at = mix_bits(key) & (edges_.size() - 1);
      while (edges_[at].key != key && edges_[at].key != Edge{}.key) at = (at + 1) & (edges_.size() - 1);
      if (edges_[at].key != key) {
        edges_[at] = {key, static_cast<uint32_t>(id_at_.size())};
        id_at_.push_back(-1);
      }
      node = edges_[at].node;
    }
    if (node != 0) id_at_[node] = static_cast<TokenId>(id);
  }
}

uint32_t Unigram::next(uint32_t node, uint8_t byte) const {
  const uint64_t key = uint64_t{node} << 8 | byte;
  for (size_t at = mix_bits(key) & (edges_.size() - 1);; at = (at + 1) & (edges_.size() - 1)) {
    if (edges_[at].key == key) return edges_[at].node;
    if (edges_[at].key == Edge{}.key) return 0;
  }
}

void Unigram::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  const double unknown_score =
      single_ ? static_cast<float>(static_cast<float>(least_) - static_cast<float>(kUnknownPenalty))
              : least_ - kUnknownPenalty;
  const auto rounded = [&](double sum) { return single_ ? static_cast<double>(static_cast<float>(sum)) : sum; };
  std::vector<Scratch::Node>& nodes = scratch.nodes;
  // Nodes of the bytes from `base` on: where every path goes through one place, what lies before it is done, and
  // the sum goes on from there. So the memory is that of the longest stretch without such a place.
  size_t base = 0, furthest = 0;
  bool after_unknown = false;
  nodes.assign(1, {0, 0, -1});
  const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
    if (end - base >= nodes.size()) nodes.resize(end - base + 1, {0, 0, -1});
    Scratch::Node& node = nodes[end - base];
    if (node.length == 0 || score > node.score) node = {score, static_cast<uint32_t>(end - begin), id};
    furthest = std::max(furthest, end);
  };
  for (size_t begin = 0; begin < piece.size();) {
    if (begin > base && begin == furthest) {
      const double here = nodes.back().score;
      emit(piece.substr(base), scratch, after_unknown, ids);
      base = begin;
      nodes.assign(1, {here, 0, -1});
    }
    const double before = nodes[begin - base].score;
    const auto lead = static_cast<uint8_t>(piece[begin]);
    const size_t letter = std::min<size_t>(lead < 0x80   ? 1
                                           : lead < 0xe0 ? 2
                                           : lead < 0xf0 ? 3
                                                         : 4,
                                           piece.size() - begin);
    bool alone = false;
    uint32_t node = 0;
    for (size_t end = begin; end < piece.size();) {
      node = next(node, static_cast<uint8_t>(piece[end++]));
      if (node == 0) break;
      const TokenId id = id_at_[node];
      if (id < 0) continue;
      const auto at = static_cast<size_t>(id);
      const double score = user_defined_[at]
                               ? rounded(static_cast<float>(end - begin) * static_cast<float>(most_) - 0.1)
                               : scores_[at];
      offer(begin, end, id, rounded(score + before));
      alone |= end - begin == letter;
    }
    if (!alone) offer(begin, begin + letter, unknown_, rounded(unknown_score + before));
    begin += letter;
  }
  emit(piece.substr(base), scratch, after_unknown, ids);
}

// The best path through the nodes. What is unknown is spelt in bytes where there are such, else several in a row
// are one token.
void Unigram::emit(std::string_view piece, Scratch& scratch, bool& after_unknown, std::vector<TokenId>& ids) const {
  scratch.path.clear();
  for (size_t at = scratch.nodes.size() - 1; at > 0; at -= scratch.nodes[at].length) scratch.path.push_back(at);
  for (size_t i = scratch.path.size(); i-- > 0;) {
    const auto [score, length, id] = scratch.nodes[scratch.path[i]];
    if (id != unknown_) {
      ids.push_back(id);
    } else if (!byte_tokens_.empty()) {
      for (const char c : piece.substr(scratch.path[i] - length, length)) {
        ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
      }
    } else if (!after_unknown) {
      ids.push_back(unknown_);
    }
    after_unknown = id == unknown_;
  }
}

}  // namespace heddle::data
