// The bytes that an exchange of experts' rows moves over each link, by topology, and the cheapest topology. They
// follow from counts of every source, gathered while a step runs (share_counts) or expected before it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/comm/exchange/places.h"
#include "heddle/ir/attributes.h"
#include "heddle/ir/topology.h"

namespace heddle::comm {

/// Counts of every source p of a group: its tokens, its rows for each rank, its tokens with rows for each rank, and
/// its tokens with rows for each node. Then the tokens among these that have one row there only.
template <class Number>
class SourceCounts {
 public:
  SourceCounts(int64_t ranks, int64_t nodes)
      : ranks_(ranks),
        each_(1 + 3 * ranks + 2 * nodes),
        nodes_(nodes),
        numbers_(static_cast<size_t>(ranks * each_)) {}
  /// The numbers of a source, in the order of the functions below.
  Number* of(int64_t p) { return numbers_.data() + p * each_; }
  int64_t ranks() const { return ranks_; }

  Number tokens(int64_t p) const { return at(p, 0); }
  Number rows(int64_t p, int64_t r) const { return at(p, 1 + r); }
  Number tokens_on(int64_t p, int64_t r) const { return at(p, 1 + ranks_ + r); }
  Number tokens_on_node(int64_t p, int64_t n) const { return at(p, 1 + 2 * ranks_ + n); }
  Number alone_on(int64_t p, int64_t r) const { return at(p, 1 + 2 * ranks_ + nodes_ + r); }
  Number alone_on_node(int64_t p, int64_t n) const { return at(p, 1 + 3 * ranks_ + nodes_ + n); }

 private:
  Number at(int64_t p, int64_t i) const { return numbers_[p * each_ + i]; }
  int64_t ranks_, each_, nodes_;
  std::vector<Number> numbers_;
};

/// Bytes that each rank sends in one hop, and those that come to it: from its node, and from others.
struct Hop {
  struct Of {
    double within_out = 0, within_in = 0, across_out = 0, across_in = 0;
  };
  std::vector<Of> of;  // by rank

  void add(const Places& places, int from, int to, double bytes);
  /// Bytes of the busiest rank to or from its neighbours, and of the busiest node's link, each in its busier
  /// direction.
  double most_within() const;
  double most_across(const Places& places) const;
};

/// The hops that rows take to their experts, and those of the sums back.
struct Hops {
  std::vector<Hop> dispatch, combine;
};
template <class Number>
Hops hops_of(ir::Topology topology, const SourceCounts<Number>& all, const Places& places, double row_bytes,
             double sum_bytes);

/// As the attributes of an exchange's ops say.
device::ExchangeRates rates_of(const ir::Attributes& a);

/// One hop after the other; within one, links work side by side.
double exchange_us(const Hops& hops, const Places& places, const device::ExchangeRates& rates);

/// The topology that "auto" takes.
template <class Number>
ir::Topology cheapest(const SourceCounts<Number>& all, const Places& places, const device::ExchangeRates& rates);

/// The topology that the word of an op's attribute stands for among these ranks; nothing for "auto". Inside one
/// node, to go by node is to go by rank.
std::optional<ir::Topology> topology_named(std::string_view word, const Places& places);

}  // namespace heddle::comm
