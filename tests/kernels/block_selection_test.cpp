// Selection of blocks of keys: the choice against its definition, by small whole numbers, of which all sums are
// exact; attention to blocks against that to a list of their keys; a mean without gates; the sum over heads without
// weights.
#include <limits>

#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {
namespace {

Tensor whole_numbers(Dtype dtype, std::vector<int64_t> shape, uint64_t seed) {
  Tensor t(dtype, std::move(shape));
  for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<double>(RandomKey(seed).bits(i) % 7) - 3;
  return t;
}

struct BlockChoice {
  int64_t B = 2, S = 24, h = 2, d = 4, block = 4, k = 3, local = 0;
  SelectionRank rank = {};
  bool documents = false;

  OpCase make(Dtype X) const {
    OpCase op{
        "choose_blocks",
        "choose_blocks",
        {activation(whole_numbers(X, {B * rank.own(S), h * d}, 3)), activation(whole_numbers(X, {B * S, d}, 4)),
         documents ? Operand{document_starts(B, S), Role::input} : absent()},
        {{"heads", h}, {"head_dim", d}, {"sequence", S}, {"top_k", k}, {"block", block}, {"local", local}},
        {}};
    rank.place(op);
    return op;
  }

  /// By the definition: the last blocks, then the best by their greatest product, the earlier one of equals.
  std::vector<double> expected() const {
    const OpCase op = make(Dtype::f64);
    const auto at = [&](size_t operand, int64_t i) { return op.in[operand].tensor.values[static_cast<size_t>(i)]; };
    std::vector<double> chosen;
    for (int64_t row = 0; row < B * rank.own(S) * h; ++row) {
      const int64_t t = row / h, sequence = t / rank.own(S), own = rank.position(t, S);
      const int64_t first = documents ? static_cast<int64_t>(at(2, sequence * S + own)) : 0;
      std::map<int64_t, double> best;
      for (int64_t s = first; s <= own; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < d; ++i) dot += at(0, row * d + i) * at(1, (sequence * S + s) * d + i);
        const auto place = best.try_emplace(s / block, -std::numeric_limits<double>::infinity()).first;
        place->second = std::max(place->second, dot);
      }
      std::vector<std::pair<double, int64_t>> order;
      for (const auto& [b, score] : best) order.emplace_back(b > own / block - local ? -1e9 : -score, b);
      std::sort(order.begin(), order.end());
      if (std::ssize(order) > k) order.resize(static_cast<size_t>(k));
      std::vector<double> list;
      for (const auto& [score, b] : order) list.push_back(static_cast<double>(b));
      std::sort(list.begin(), list.end());
      list.resize(static_cast<size_t>(k), -1);
      chosen.insert(chosen.end(), list.begin(), list.end());
    }
    return chosen;
  }
};

std::vector<BlockChoice> block_choices() {
  std::vector<BlockChoice> all{{},
                               {.local = 1},
                               {.k = 6},
                               {.S = 22, .block = 5, .k = 3, .local = 2},
                               {.S = 22, .block = 1, .k = 7, .local = 1},
                               {.documents = true},
                               {.S = 23, .block = 3, .k = 2, .local = 1, .documents = true},
                               {.B = 1, .S = 300, .h = 1, .block = 7, .k = 9, .local = 1}};
  for (const int index : {0, 1}) {
    for (const bool documents : {false, true})
      all.push_back({.block = 5, .k = 2, .local = 1, .rank = {.cp = 2, .cp_index = index}, .documents = documents});
  }
  return all;
}

TEST(BlockSelection, ChoosesTheLastBlocksAndTheBest) {
  for (const BlockChoice& choice : block_choices()) {
    const std::vector<double> expected = choice.expected();
    for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
      for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        if (X == Dtype::f64 && kernels == &kernels::host_kernels()) continue;
        EXPECT_EQ(run_op(choice.make(X), *kernels).out[0].values, expected) << name_of(X) << " S " << choice.S;
      }
    }
  }
}

// Row t of a sequence is the query that stands at place t of a cache of its keys.
TEST(BlockSelection, OfACacheIsThatOfTheSequence) {
  const BlockChoice choice{.B = 2, .S = 12, .block = 3, .k = 2, .local = 1};
  const std::vector<double> whole = choice.expected();
  const std::vector<int64_t> rows{3, 11, 14, 23};
  for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase op = choice.make(Dtype::f32);
    const Tensor all = op.in[0].tensor;
    Tensor few(all.dtype, {5, all.shape[1]});
    for (size_t r = 0; r < rows.size(); ++r)
      std::copy_n(all.values.begin() + rows[r] * all.shape[1], all.shape[1],
                  few.values.begin() + static_cast<std::ptrdiff_t>(r) * all.shape[1]);
    op.in[0].tensor = few;
    op.in.push_back({Tensor(Dtype::i32, {5}, std::vector<double>{3, 11, 14, 23, -1}), Role::input});
    const std::vector<double> found = run_op(op, *kernels).out[0].values;
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(found[i], whole[static_cast<size_t>(rows[i / 4]) * 4 + i % 4]);
    for (size_t i = 16; i < 20; ++i) EXPECT_EQ(found[i], -1);  // it stands nowhere
  }
}

// The same bits as attention to the positions of the blocks, head by head.
TEST(BlockSelection, AttendsToTheKeysOfItsBlocks) {
  for (const auto& [name, of] : block_lists()) {
    const int64_t B = 2, h = 4, hk = 2, g = h / hk, rows = B * of.rank.own(of.S);
    const OpCase op = attention_to_blocks(name, Dtype::f64, B, h, hk, of);
    const GradientResult found = run_with_gradient(op, kernels::reference_kernels());
    for (int64_t kv = 0; kv < hk; ++kv) {
      Tensor list(Dtype::i32, {rows, of.S}, -1);
      const Tensor& chosen = op.in[3].tensor;
      for (int64_t t = 0; t < rows; ++t) {
        const auto [start, end] = of.seen(t);
        const int64_t from = t * chosen.shape[1] + (of.lists > 1 ? kv * of.columns : 0);
        int64_t count = 0;
        for (int64_t n = start; n < end; ++n) {
          bool reads = of.tail && n >= end / of.block * of.block;
          for (int64_t j = 0; j < of.columns; ++j)
            reads = reads || chosen.values[static_cast<size_t>(from + j)] == static_cast<double>(n / of.block);
          if (reads) list.values[static_cast<size_t>(t * of.S + count++)] = static_cast<double>(n);
        }
      }
      OpCase apart = op;
      apart.attributes = {{"heads", h},     {"kv_heads", hk},   {"head_dim", 5},
                          {"value_dim", 4}, {"sequence", of.S}, {"scale", 0.4}};
      of.rank.place(apart);
      apart.in = {op.in[0], op.in[1], op.in[2], metadata(list)};
      const GradientResult expected = run_with_gradient(apart, kernels::reference_kernels());
      const auto same_heads = [&](const Tensor& a, const Tensor& b, int64_t heads, int64_t width,
                                  const char* what) {
        for (int64_t row = 0; row < a.shape[0]; ++row) {
          for (int64_t i = kv * heads * width; i < (kv + 1) * heads * width; ++i) {
            const auto at = static_cast<size_t>(row * a.shape[1] + i);
            ASSERT_EQ(a.values[at], b.values[at]) << name << " " << what << " row " << row;
          }
        }
      };
      same_heads(found.out[0], expected.out[0], g, 4, "o");
      same_heads(found.out[1], expected.out[1], g, 1, "lse");
      same_heads(found.d_in[0], expected.d_in[0], g, 5, "dq");
      same_heads(found.d_in[1], expected.d_in[1], 1, 5, "dk");
      same_heads(found.d_in[2], expected.d_in[2], 1, 4, "dv");
    }
  }
}

TEST(BlockSelection, WithoutGatesABlockHasTheMean) {
  for (const bool documents : {false, true}) {
    const int64_t B = 2, S = 17, m = 5, d = 6;
    OpCase op{"compress_rows",
              "compress_rows",
              {metadata(random_tensor(Dtype::f64, {B * S, d}, 5)), absent(), absent(),
               documents ? Operand{document_starts(B, S), Role::input} : absent()},
              {{"sequence", S}, {"rate", m}},
              {}};
    const Tensor& c = op.in[0].tensor;
    const Tensor expected = run_op(op, kernels::reference_kernels()).out[0];
    const Tensor starts = document_starts(B, S);
    for (int64_t e = 0; e < B * (S / m); ++e) {
      const int64_t base = e / (S / m) * S, first = e % (S / m) * m;
      for (int64_t i = 0; i < d; ++i) {
        double sum = 0, count = 0;
        for (int64_t n = first; n < first + m; ++n) {
          if (documents && static_cast<double>(n) < starts.values[static_cast<size_t>(base + first + m - 1)])
            continue;
          sum += c.values[static_cast<size_t>((base + n) * d + i)];
          ++count;
        }
        EXPECT_NEAR(expected.values[static_cast<size_t>(e * d + i)], sum / count, 1e-14);
      }
    }
    op.in[0].tensor.dtype = Dtype::f32;
    EXPECT_TRUE(close(expected, run_op(op, kernels::host_kernels()).out[0], 1e-6));
  }
}

TEST(BlockSelection, WithoutWeightsEachHeadWeighsOne) {
  const int64_t B = 2, S = 20, h = 3, d = 4;
  for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase op{"choose_keys",
              "choose_keys",
              {activation(whole_numbers(Dtype::f32, {B * S, h * d}, 8)),
               activation(whole_numbers(Dtype::f32, {B * S, d}, 9)),
               activation(Tensor(Dtype::f32, {B * S, h}, std::vector<double>(static_cast<size_t>(B * S * h), 1)))},
              {{"heads", h}, {"head_dim", d}, {"sequence", S}, {"top_k", 4}, {"scale", 0.5}},
              {}};
    const Tensor weighed = run_op(op, *kernels).out[0];
    op.in[2] = absent();
    EXPECT_TRUE(same(weighed, run_op(op, *kernels).out[0]));
  }
}

}  // namespace
}  // namespace heddle::op_runner
