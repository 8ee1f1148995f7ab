// Cases of QK-clip (ops/qk_clip.cpp), for the reference and for every backend that has kernels of its own.
#pragma once

#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {

struct LogitCase {
  int64_t S, heads, kv_heads, window = 0;
  bool documents = false, ring = false;
  int cp = 1, cp_index = 0;
  int64_t chosen = 0;      // keys of a row; 0: all that it sees
  int64_t head_parts = 1;  // heads of the whole, over this rank's
  double above = 1.5;
};

/// The query and key rows that meet, of sequence b: the row of q in it, the part of keys and the row in that part.
template <class Visit>
void each_pair(const LogitCase& c, const OpCase& op, int64_t b, const Visit& visit) {
  const int64_t own = c.S / c.cp;
  for (int64_t i = 0; i < own; ++i) {
    const int64_t at = ir::position(i, c.S, c.cp_index, c.cp);
    for (int part = 0; part < (c.ring ? c.cp : 1); ++part) {
      const int owner = (c.cp_index + c.cp - part) % c.cp;
      for (int64_t j = 0; j < (c.ring ? own : c.S); ++j) {
        const int64_t key = c.ring ? ir::position(j, c.S, owner, c.cp) : j;
        if (key > at || (c.window > 0 && at - key >= c.window)) continue;
        if (c.documents && op.in[2].tensor.values[static_cast<size_t>(b * c.S + at)] > static_cast<double>(key))
          continue;
        if (c.chosen > 0) {
          const auto* row = op.in[3].tensor.values.data() + (b * own + i) * c.chosen;
          if (std::find(row, row + c.chosen, static_cast<double>(key)) == row + c.chosen) continue;
        }
        visit(i, part, j);
      }
    }
  }
}

constexpr int64_t kLogitWidth = 5;
constexpr double kLogitScale = 0.5;

/// scale·q·k of a query row of all sequences, a head, and a key row of all sequences of a part.
inline double logit_of(const LogitCase& c, const OpCase& op, int64_t query, int64_t head, int part, int64_t key) {
  const auto& q = op.in[0].tensor.values;
  const auto& k = op.in[4 + static_cast<size_t>(part)].tensor.values;
  double dot = 0;
  for (int64_t e = 0; e < kLogitWidth; ++e) {
    dot += q[static_cast<size_t>((query * c.heads + head) * kLogitWidth + e)] *
           k[static_cast<size_t>((key * c.kv_heads + head / (c.heads / c.kv_heads)) * kLogitWidth + e)];
  }
  return dot * kLogitScale;
}

/// Two sequences, with the lse that their attention has.
inline OpCase max_logits_case(const LogitCase& c, Dtype X, uint64_t seed = 1) {
  const int64_t B = 2, own = c.S / c.cp;
  const SelectionRank rank{.cp = c.cp, .cp_index = c.cp_index};
  OpCase op{fmt::format("max_logits {} heads {} of {} window {} {}{} cp {} at {} chosen {} above {}", c.S, c.heads,
                        c.kv_heads, c.window, c.documents ? "documents " : "", c.ring ? "ring" : "", c.cp,
                        c.cp_index, c.chosen, c.above),
            "max_logits",
            {metadata(random_tensor(X, {B * own, c.heads * kLogitWidth}, seed)),
             metadata(Tensor(wide(X), {B * own, c.heads})),
             c.documents ? Operand{document_starts(B, c.S), Role::input} : absent(),
             c.chosen > 0 ? metadata(random_choice(B, c.S, c.chosen, rank, seed + 1)) : absent()},
            {{"heads", c.heads},
             {"kv_heads", c.kv_heads},
             {"head_dim", kLogitWidth},
             {"sequence", c.S},
             {"causal", int64_t{1}},
             {"scale", kLogitScale},
             {"above", c.above}},
            {random_tensor(Dtype::f64, {1, c.heads * c.head_parts + 1}, seed + 2)}};
  rank.place(op);
  if (c.head_parts > 1) op.place.degree[static_cast<size_t>(ir::Axis::cp)] = static_cast<int>(c.head_parts);
  if (c.head_parts > 1) op.attributes.set("head_parts", c.head_parts);
  if (c.window > 0) op.attributes.set("window", c.window);
  if (c.ring) op.attributes.set("ring", int64_t{1});
  for (int part = 0; part < (c.ring ? c.cp : 1); ++part)
    op.in.push_back(metadata(random_tensor(X, {B * (c.ring ? own : c.S), c.kv_heads * kLogitWidth},
                                           seed + 10 + static_cast<uint64_t>(part))));
  auto& lse = op.in[1].tensor.values;
  std::fill(lse.begin(), lse.end(), 0.0);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t head = 0; head < c.heads; ++head) {
      each_pair(c, op, b, [&](int64_t i, int part, int64_t j) {
        lse[static_cast<size_t>((b * own + i) * c.heads + head)] +=
            std::exp(logit_of(c, op, b * own + i, head, part, b * (c.ring ? own : c.S) + j));
      });
    }
  }
  for (double& x : lse) x = X == Dtype::f64 ? std::log(x) : static_cast<double>(static_cast<float>(std::log(x)));
  return op;
}

inline std::vector<LogitCase> logit_cases() {
  std::vector<LogitCase> all{{9, 2, 2},
                             {17, 4, 2, 3},
                             {17, 4, 2, 0, true},
                             {70, 3, 1, 40, true},
                             {12, 2, 2, 0, false, false, 1, 0, 4},
                             {12, 4, 1, 0, false, false, 2, 1, 3},
                             {12, 2, 1, 0, false, false, 1, 1, 0, 2}};
  for (const int index : {0, 1, 2}) {
    for (const bool ring : {false, true}) all.push_back({24, 4, 2, 5, ring, ring, 3, index});
  }
  std::vector<LogitCase> cases;
  for (LogitCase c : all) {
    for (const double above : {-1e9, 1.5, 1e9}) {
      c.above = above;
      cases.push_back(c);
    }
  }
  return cases;
}

/// A rank's run of a weight of heads, among `ranks` whose maxima stand in `most`: head 0 exceeds on the last rank,
/// head 2 on the first, head 1 on none.
struct ScaleCase {
  int64_t ranks = 1, run = 0, columns = 3;
  double clip = 0.5;
};
constexpr int64_t kScaledHeads = 3, kScaledRows = 5, kScaledFirst = 2;
constexpr double kScaledAbove = 10;

inline OpCase scale_heads_case(const ScaleCase& c, Dtype A) {
  OpCase op;
  op.name = fmt::format("scale_heads run {} of {}, {} columns, clip {}", c.run, c.ranks, c.columns, c.clip);
  op.kind = "scale_heads";
  op.place.index[static_cast<size_t>(ir::Axis::dp)] = static_cast<int>(c.run);
  op.place.degree[static_cast<size_t>(ir::Axis::dp)] = static_cast<int>(c.ranks);
  Tensor most(Dtype::f64, {c.ranks, kScaledHeads + 1}, 1.0);
  for (int64_t r = 0; r < c.ranks; ++r) most.values[static_cast<size_t>(r * 4 + 3)] = static_cast<double>(r);
  most.values[static_cast<size_t>((c.ranks - 1) * 4)] = 40;
  most.values[2] = 12;
  op.in = {metadata(Tensor(Dtype::f64, {1}, c.clip)), metadata(most)};
  op.attributes = {{"above", kScaledAbove}, {"heads", kScaledHeads}, {"rows", kScaledRows}, {"first", kScaledFirst},
                   {"first_power", 0.5},    {"rest_power", 1.0},     {"columns", c.columns}};
  const int64_t count = (kScaledHeads * kScaledRows * c.columns + c.ranks - 1) / c.ranks;
  op.updates = {random_tensor(A, {count}, 7 + static_cast<uint64_t>(c.run))};
  return op;
}

inline std::vector<ScaleCase> scale_cases() {
  std::vector<ScaleCase> all{{1, 0, 3}, {1, 0, 1}, {1, 0, 700}, {2, 1, 3, 0.0}};
  for (int64_t run = 0; run < 4; ++run) all.push_back({4, run, 3});  // of 12 elements, which rows do not end with
  return all;
}

}  // namespace heddle::op_runner
