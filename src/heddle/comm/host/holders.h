// The destination of an exchange that holds each expert, looked up rather than divided for every row.
#pragma once

#include <vector>

#include "heddle/device/exchange_work.h"

namespace heddle::comm::host {

class Holders {
 public:
  explicit Holders(const device::TokenRoutes& r) {
    std::vector<int32_t> of_place(static_cast<size_t>(r.G), -1);  // ranks, or nodes
    for (int64_t d = 0; d < r.D; ++d) {
      if (r.to_D[d] != device::kNoRank) of_place[r.to_D[d]] = static_cast<int32_t>(d);
    }
    const auto experts = static_cast<size_t>(r.G / r.slices * r.P);
    slices_Es_.reserve(experts * static_cast<size_t>(r.slices));
    index_E_.reserve(experts);
    for (int64_t holder = 0; holder < r.G / r.slices; ++holder) {
      for (int64_t e = 0; e < r.P; ++e) {
        index_E_.push_back(static_cast<int32_t>(e));
        for (auto rank = static_cast<int32_t>(holder * r.slices); rank < (holder + 1) * r.slices; ++rank) {
          const int32_t node = r.node_of_G[rank];
          slices_Es_.push_back({rank, node, of_place[r.by_node ? node : rank]});
        }
      }
    }
  }
  /// A rank that has a slice of an expert.
  struct Slice {
    int32_t rank, node, destination;  // -1: none
  };
  /// False of an expert without computation, which no rank holds.
  bool has(int32_t expert) const { return expert < std::ssize(index_E_); }
  /// Slice s of expert e at e·slices + s.
  const Slice* slices() const { return slices_Es_.data(); }
  /// The index of an expert among those of its ranks.
  int32_t index(int32_t expert) const { return index_E_[expert]; }

 private:
  std::vector<Slice> slices_Es_;
  std::vector<int32_t> index_E_;
};

}  // namespace heddle::comm::host
