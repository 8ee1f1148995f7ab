// Which rows go where in the exchanges of a MoE layer: lists that every rank works out from the routing plan, so
// that no sizes need to travel. See device/routing_plan.h for the letters.
#pragma once

#include <span>
#include <vector>

#include "heddle/comm/places.h"

namespace heddle::comm {

using device::RoutingPlan;
using device::Topology;

/// The rows of one source's tokens, by destination.
class SourceRows {
 public:
  SourceRows(const RoutingPlan& plan, const int32_t* experts_Tk, int64_t tokens);

  /// Slots t·k + j of the rows for expert e of a rank, in increasing token.
  std::span<const int32_t> of(int64_t rank, int64_t e) const;
  /// All rows for a rank, by (expert, token).
  std::span<const int32_t> of(int64_t rank) const;
  /// Where a slot stands among the rows for its rank.
  int64_t index_of(int64_t slot) const { return index_of_[static_cast<size_t>(slot)]; }
  /// Tokens with an expert on a rank, increasing.
  std::span<const int32_t> tokens_on(int64_t rank) const { return tokens_on_[static_cast<size_t>(rank / slices_)]; }
  /// Tokens with an expert (or a slice of one) on some rank of a node, increasing.
  std::vector<int32_t> tokens_on_node(const Places& places, int node) const;

  /// Of each token, whether exactly one of its rows is for these ranks: its sum there would be that row.
  std::vector<bool> alone_on(std::span<const int> ranks) const;

  int64_t tokens() const { return tokens_; }

 private:
  int64_t tokens_, slices_, experts_each_;
  std::vector<int64_t> start_;  // of each expert's rows in slots_
  std::vector<int32_t> slots_, index_of_;
  std::vector<std::vector<int32_t>> tokens_on_;  // by rank ÷ slices
};

/// A sum of one row is sent back as that row where this is shorter: in another type than sums, and where what
/// crosses nodes need not be regular. Then token_S holds ~token.
inline bool rows_go_back_alone(Topology topology, Dtype rows) {
  return rows == Dtype::bf16 && (topology == Topology::rank || topology == Topology::node);
}

/// The rows that this rank has received, by (source, token).
struct Arrivals {
  /// Reads plan.token_S.
  explicit Arrivals(const RoutingPlan& plan);

  /// Where the rows of source s for expert e begin.
  static std::vector<int64_t> blocks(const RoutingPlan& plan);  // [e·G + s], and the end

  std::vector<int64_t> of_source;    // its first token below; and the end
  std::vector<int64_t> of_token;     // its first row below; and the end
  std::vector<bool> alone;           // of each token: its row goes back as it is, no sum
  std::vector<int64_t> row, expert;  // by increasing expert within a token
};

/// The tokens that pass through this rank to others of its node.
struct Passing {
  Passing(const RoutingPlan& plan, const Places& places);
  /// Lists of each source; reads plan.passing_Qk.
  void read(const RoutingPlan& plan);

  std::vector<int> sources;
  std::vector<int64_t> first;    // of each source's tokens among the Q; and Q
  std::vector<SourceRows> rows;  // of each source
};

}  // namespace heddle::comm
