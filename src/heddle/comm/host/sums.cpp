// Sums of what experts made of a token, on its way back to where it came from. X is the type of rows, A that of
// sums and gates. Products with gates and all sums are rounded in A, in the tree of device/merge_tree.h.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "heddle/base/error.h"
#include "heddle/comm/host/holders.h"
#include "heddle/comm/host/row_work.h"
#include "heddle/device/merge_tree.h"

namespace heddle::comm::host {

using device::CombineSums;
using device::SlotNumbers;
using device::SumNode;
using device::SumTokens;
using device::TokenRoutes;

namespace {

/// Rows of H numbers that take part in one sum, by key.
template <class X, class A>
class Leaves {
 public:
  void clear() { keys_.clear(), leaves_.clear(); }
  bool has(int64_t key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }
  void add_sum(int64_t key, const A* sum) { add(key, {sum, nullptr, A(1)}); }
  void add_row(int64_t key, const X* row, A gate) { add(key, {nullptr, row, gate}); }
  /// The only leaf, where it is a row.
  const X* row() const { return leaves_.front().row; }

  /// take(h, n, sum) for n columns from h on, a stretch at a time. Without leaves the sum is zero.
  template <class Take>
  void sum(int64_t H, bool weighed, Take take) {
    if (leaves_.size() == 1 && leaves_[0].row == nullptr) return take(0, H, leaves_[0].sum);
    merges_.resize(keys_.size());
    device::merges_of(keys_.data(), std::ssize(keys_), merges_.data());
    for (int64_t h = 0; h < H; h += kStretch) {
      const int64_t n = std::min(kStretch, H - h);
      weighed ? sum_stretch<true>(h, n) : sum_stretch<false>(h, n);
      take(h, n, static_cast<const A*>(pending_[0]));
    }
  }

 private:
  struct Leaf {
    const A* sum;
    const X* row;
    A gate;
  };
  // Columns of a sum that stay in the nearest cache, with the sums that are pending.
  static constexpr int64_t kStretch = 256;

  void add(int64_t key, const Leaf& leaf) {
    auto at = keys_.size();  // nearly always: experts come in increasing order
    while (at > 0 && keys_[at - 1] > key) --at;
    keys_.insert(keys_.begin() + static_cast<int64_t>(at), key);
    leaves_.insert(leaves_.begin() + static_cast<int64_t>(at), leaf);
  }

  /// use(columns of a leaf from h on, as a function of the column).
  template <bool weighed, class Use>
  static void with_leaf(const Leaf& leaf, int64_t h, Use use) {
    if (leaf.row == nullptr) return use([from = leaf.sum + h](int64_t i) { return from[i]; });
    if (weighed) {
      return use([from = leaf.row + h, gate = leaf.gate](int64_t i) { return gate * static_cast<A>(from[i]); });
    }
    use([from = leaf.row + h](int64_t i) { return static_cast<A>(from[i]); });
  }

  /// A leaf is joined as it is read: to the newest sum, or with the leaf before it to a new one.
  template <bool weighed>
  void sum_stretch(int64_t h, int64_t n) {
    if (leaves_.empty()) std::fill_n(pending_[0], n, A(0));
    int top = 0;
    for (size_t j = 0; j < leaves_.size(); ++j) {
      int merges = merges_[j];
      if (merges == 0) {
        A* to = pending_[top++];
        const bool pair = j + 1 < leaves_.size() && merges_[j + 1] > 0;
        with_leaf<weighed>(leaves_[j], h, [&](auto first) {
          if (!pair) {
            for (int64_t i = 0; i < n; ++i) to[i] = first(i);
            return;
          }
          with_leaf<weighed>(leaves_[j + 1], h, [&](auto second) {
            for (int64_t i = 0; i < n; ++i) to[i] = first(i) + second(i);
          });
        });
        if (!pair) continue;
        merges = merges_[++j] - 1;
      } else {
        A* to = pending_[top - 1];
        with_leaf<weighed>(leaves_[j], h, [&](auto value) {
          for (int64_t i = 0; i < n; ++i) to[i] = to[i] + value(i);
        });
        --merges;
      }
      for (; merges > 0; --merges) {
        --top;
        A *to = pending_[top - 1], *last = pending_[top];
        for (int64_t i = 0; i < n; ++i) to[i] = to[i] + last[i];
      }
    }
  }

  std::vector<int64_t> keys_;
  std::vector<Leaf> leaves_;
  std::vector<uint8_t> merges_;
  alignas(64) A pending_[device::kMostPendingSums][kStretch];
};

/// The entry at a place of list b: sums first, then rows.
struct Placed {
  explicit Placed(int32_t code) : is_sum(code >= 0), row(code < 0 ? ~code : code) {}
  Placed(const int32_t* many, const int32_t* alone, int64_t b, int32_t place) {
    const int32_t count = many[b + 1] - many[b];
    is_sum = place < count;
    row = is_sum ? many[b] + place : alone[b] + place - count;
  }
  bool is_sum;
  int64_t row;
};

template <class T>
const T* row_of(const void* rows, int64_t row, int64_t H) {
  return static_cast<const T*>(rows) + row * H;
}
template <class T>
T* row_of(void* rows, int64_t row, int64_t H) {
  return static_cast<T*>(rows) + row * H;
}

/// The leaves' sum to a place among sums; or the one row that they are, as it is, to a place among rows.
template <class X, class A>
void hand_on(Leaves<X, A>& leaves, bool weighed, const Placed& to, void* sums, void* rows, int64_t H) {
  if (!to.is_sum) {
    std::copy_n(leaves.row(), H, row_of<X>(rows, to.row, H));
    return;
  }
  A* sum = row_of<A>(sums, to.row, H);
  leaves.sum(H, weighed, [&](int64_t h, int64_t n, const A* part) { std::copy_n(part, n, sum + h); });
}

/// body(X{}, A{}) for rows of this type.
template <class Body>
void by_type(Dtype rows, Body body) {
  switch (rows) {
    case Dtype::f64: return body(double{}, double{});
    case Dtype::f32: return body(float{}, float{});
    case Dtype::bf16: return body(bf16{}, float{});
    default: internal_error("rows of {}", name_of(rows));
  }
}

template <class X, class A>
void add_placed(Leaves<X, A>& leaves, int64_t key, const Placed& from, const void* sums, const void* rows, A gate,
                int64_t H) {
  if (from.is_sum) {
    leaves.add_sum(key, row_of<A>(sums, from.row, H));
  } else {
    leaves.add_row(key, row_of<X>(rows, from.row, H), gate);
  }
}

template <class X, class A>
void sum_node_in(const SumNode& args) {
  const TokenRoutes& r = args.routes;
  const Holders holders(r);
  Leaves<X, A> leaves;
  for (int64_t i = 0; i < r.I; ++i) {
    for (int64_t q = r.first_I[i]; q < r.first_I[i + 1]; ++q) {
      const int32_t found = args.to_place_Q[q];
      if (found < 0) continue;
      leaves.clear();
      for (int64_t slot = q * r.k; slot < (q + 1) * r.k; ++slot) {
        if (!holders.has(r.experts_Qk[slot])) continue;
        const Holders::Slice* slices = holders.slices() + r.experts_Qk[slot] * r.slices;
        for (int64_t s = 0; s < r.slices; ++s) {
          const int64_t d = slices[s].destination;
          if (d < 0 || leaves.has(d)) continue;
          const Placed from(args.many_DI, args.alone_DI, d * r.I + i, args.place_DQ[d * r.Q + q]);
          add_placed(leaves, d, from, args.sums, args.alone, A(1), args.H);
        }
      }
      hand_on(leaves, false, Placed(args.to_many_I, args.to_alone_I, i, found), args.to_sums, args.to_alone,
              args.H);
    }
  }
}

/// Lists what has come home of token t.
template <class X, class A>
void list_combine_leaves(const CombineSums& args, const Holders& holders, int64_t t, Leaves<X, A>& leaves) {
  const TokenRoutes& r = args.routes;
  for (int64_t slot = t * r.k; slot < (t + 1) * r.k; ++slot) {
    const int32_t expert = r.experts_Qk[slot];
    if (!holders.has(expert)) continue;
    const Holders::Slice* slices = holders.slices() + expert * r.slices;
    const A gate = args.g_Tk == nullptr ? A(1) : static_cast<const A*>(args.g_Tk)[slot];
    for (int64_t s = 0; s < r.slices; ++s) {
      const int64_t rank = slices[s].rank;
      if (args.row_of_Tks != nullptr) {
        int64_t owner = rank, index = holders.index(expert);
        if (args.expert_of_slot != nullptr) {
          owner = args.expert_of_slot[expert] / args.own_each * r.slices + s;
          index = args.expert_of_slot[expert] % args.own_each;
        }
        leaves.add_row(args.key_of_G[owner] * args.keys_each + index,
                       row_of<X>(args.rows, args.row_of_Tks[slot * r.slices + s], args.H), gate);
        continue;
      }
      const int64_t d = slices[s].destination, key = r.by_node ? d : args.key_of_G[rank];
      if (leaves.has(key)) continue;
      const Placed from(args.many_DI, args.alone_DI, d, args.place_DQ[d * r.Q + t]);
      add_placed(leaves, key, from, args.sums, args.rows, gate, args.H);
    }
  }
}

template <class X, class A>
void combine_sums_in(const CombineSums& args) {
  const Holders holders(args.routes);
  Leaves<X, A> leaves;
  for (int64_t t = 0; t < args.routes.Q; ++t) {
    leaves.clear();
    list_combine_leaves(args, holders, t, leaves);
    X* to = row_of<X>(args.to_TH, t, args.H);
    const X* residual = args.residual_TH == nullptr ? nullptr : row_of<X>(args.residual_TH, t, args.H);
    leaves.sum(args.H, args.g_Tk != nullptr, [&](int64_t h, int64_t n, const A* sum) {
      if (residual == nullptr) {
        for (int64_t i = 0; i < n; ++i) to[h + i] = X(sum[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) to[h + i] = X(sum[i] + static_cast<A>(residual[h + i]));
      }
    });
  }
}

template <class A>
void slot_numbers_in(const SlotNumbers& args) {
  const TokenRoutes& r = args.routes;
  const Holders holders(r);
  const auto* from = static_cast<const A*>(args.from);
  auto* to = static_cast<A*>(args.to);
  for (int64_t slot = 0; slot < r.Q * r.k; ++slot) {
    if (!holders.has(r.experts_Qk[slot])) {
      std::fill_n(to + (args.spread ? slot * r.slices : slot), args.spread ? r.slices : 1, A(0));
      continue;
    }
    const Holders::Slice* slices = holders.slices() + r.experts_Qk[slot] * r.slices;
    A sum = 0;
    for (int64_t s = 0; s < r.slices; ++s) {
      const int64_t at = slot * r.slices + s, node = slices[s].node;
      if (args.spread) {
        to[at] = node == args.node ? from[args.row_of_Qks[at]] : A(0);
      } else {
        sum += from[args.row_of_Qks == nullptr ? node * r.Q * r.k * r.slices + at : args.row_of_Qks[at]];
      }
    }
    if (!args.spread) to[slot] = sum;
  }
}

}  // namespace

void sum_tokens(Dtype rows, const SumTokens& args, void*) {
  by_type(rows, [&]<class X, class A>(X, A) {
    Leaves<X, A> leaves;
    const auto* gates = static_cast<const A*>(args.g_S);
    for (int64_t u = 0; u < args.U; ++u) {
      leaves.clear();
      for (int64_t leaf = u * args.L; leaf < (u + 1) * args.L && args.leaf_UL[leaf] >= 0; ++leaf) {
        const int64_t row = args.leaf_UL[leaf];
        leaves.add_row(args.key_UL[leaf], row_of<X>(args.rows_SH, row, args.H),
                       gates == nullptr ? A(1) : gates[row]);
      }
      hand_on(leaves, gates != nullptr, Placed(args.to_U[u]), args.sums, args.alone, args.H);
    }
  });
}

void sum_node(Dtype rows, const SumNode& args, void*) {
  by_type(rows, [&]<class X, class A>(X, A) { sum_node_in<X, A>(args); });
}

void combine_sums(Dtype rows, const CombineSums& args, void*) {
  by_type(rows, [&]<class X, class A>(X, A) { combine_sums_in<X, A>(args); });
}

void slot_numbers(Dtype wide, const SlotNumbers& args, void*) {
  wide == Dtype::f64 ? slot_numbers_in<double>(args) : slot_numbers_in<float>(args);
}

}  // namespace heddle::comm::host
