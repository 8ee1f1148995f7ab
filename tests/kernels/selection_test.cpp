// Selection of keys: the choice against its definition, by small whole numbers, of which all sums are exact;
// attention to chosen keys, the shares of heads and the indexer's loss on the host against reference, with any
// number of threads; attention to all keys as `attention` has it, to the bit; queries of a cache.
#include <omp.h>

#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {
namespace {

/// Whole numbers from −2 to 2: many scores are equal, and no sum is rounded.
Tensor small_numbers(Dtype dtype, std::vector<int64_t> shape, uint64_t seed) {
  Tensor t(dtype, std::move(shape));
  for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<double>(RandomKey(seed).bits(i) % 5) - 2;
  return t;
}

struct Choice {
  int64_t B = 2, S = 24, h = 3, d = 4, k = 5;
  SelectionRank rank;
  bool documents = false;
  uint64_t seed = 1;

  OpCase make(Dtype X) const {
    const int64_t rows = B * rank.own(S);
    OpCase op{
        "choose_keys",
        "choose_keys",
        {activation(small_numbers(X, {rows, h * d}, seed)), activation(small_numbers(X, {B * S, d}, seed + 1)),
         activation(small_numbers(wide(X), {rows, h}, seed + 2)),
         documents ? Operand{document_starts(B, S), Role::input} : absent()},
        {{"heads", h}, {"head_dim", d}, {"sequence", S}, {"top_k", k}, {"scale", 0.25}},
        {}};
    rank.place(op);
    return op;
  }

  /// By the definition: the best by score, the earlier one of equals, in increasing position.
  std::vector<double> expected() const {
    const OpCase op = make(Dtype::f64);
    const auto at = [&](size_t operand, int64_t i) { return op.in[operand].tensor.values[static_cast<size_t>(i)]; };
    std::vector<double> chosen;
    for (int64_t t = 0; t < B * rank.own(S); ++t) {
      const int64_t sequence = t / rank.own(S), own = rank.position(t, S);
      const int64_t first = documents ? static_cast<int64_t>(at(3, sequence * S + own)) : 0;
      std::vector<std::pair<double, int64_t>> scores;
      for (int64_t s = first; s <= own; ++s) {
        double score = 0;
        for (int64_t j = 0; j < h; ++j) {
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += at(0, (t * h + j) * d + i) * at(1, (sequence * S + s) * d + i);
          score += at(2, t * h + j) * std::max(0.0, dot);
        }
        scores.emplace_back(-score, s);
      }
      std::sort(scores.begin(), scores.end());
      std::vector<double> row;
      for (const auto& [score, s] : scores) {
        if (std::ssize(row) < k) row.push_back(static_cast<double>(s));
      }
      std::sort(row.begin(), row.end());
      row.resize(static_cast<size_t>(k), -1);
      chosen.insert(chosen.end(), row.begin(), row.end());
    }
    return chosen;
  }
};

std::vector<Choice> choices() {
  std::vector<Choice> all{{}, {.k = 1}, {.k = 24}, {.documents = true}, {.B = 1, .S = 300, .k = 70}};
  for (const int index : {0, 1, 2, 3}) {
    for (const bool documents : {false, true})
      all.push_back(
          {.rank = {.cp = 2, .cp_index = index / 2, .tp = 2, .tp_index = index % 2}, .documents = documents});
  }
  return all;
}

TEST(Selection, ChoosesTheBestAndTheEarlierOfEquals) {
  for (const Choice& choice : choices()) {
    const std::vector<double> expected = choice.expected();
    for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
      for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        if (X == Dtype::f64 && kernels == &kernels::host_kernels()) continue;
        EXPECT_EQ(run_op(choice.make(X), *kernels).out[0].values, expected) << name_of(X) << " k " << choice.k;
      }
    }
  }
}

TEST(Selection, OfEqualScoresTakesTheFirst) {
  OpCase op = Choice{.B = 1, .S = 8, .k = 3}.make(Dtype::f32);
  for (double& w : op.in[2].tensor.values) w = 0;
  const std::vector<double> expected{0, -1, -1, 0, 1, -1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  EXPECT_EQ(run_op(op, kernels::reference_kernels()).out[0].values, expected);
  EXPECT_EQ(run_op(op, kernels::host_kernels()).out[0].values, expected);
}

// Row t of a sequence is the query that stands at place t of a cache of its keys.
TEST(Selection, OfACacheIsThatOfTheSequence) {
  const Choice choice{.B = 2, .S = 12, .k = 4};
  const std::vector<double> whole = choice.expected();
  for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase op = choice.make(Dtype::f32);
    const std::vector<int64_t> rows{3, 11, 14, 23};
    for (const size_t operand : {size_t{0}, size_t{2}}) {
      Tensor& all = op.in[operand].tensor;
      Tensor few(all.dtype, {5, all.shape[1]});
      for (size_t r = 0; r < rows.size(); ++r)
        std::copy_n(all.values.begin() + rows[r] * all.shape[1], all.shape[1],
                    few.values.begin() + static_cast<std::ptrdiff_t>(r) * all.shape[1]);
      all = few;
    }
    op.in.push_back({Tensor(Dtype::i32, {5}, std::vector<double>{3, 11, 14, 23, -1}), Role::input});
    const std::vector<double> found = run_op(op, *kernels).out[0].values;
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t j = 0; j < 4; ++j) EXPECT_EQ(found[r * 4 + j], whole[static_cast<size_t>(rows[r]) * 4 + j]);
    }
    for (size_t j = 16; j < 20; ++j) EXPECT_EQ(found[j], -1);  // it stands nowhere
  }
}

OpCase plain_attention(const OpCase& chosen) {
  OpCase op = chosen;
  op.kind = "attention";
  op.in.resize(3);
  op.attributes.set("causal", int64_t{1});
  return op;
}

TEST(Selection, OfAllKeysIsAttention) {
  for (const CaseMaker& maker : selection_cases()) {
    if (maker.name != "chosen_attention_of_all") continue;
    for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      const OpCase op = maker.make(X, 2);
      const GradientResult found = run_with_gradient(op, kernels::reference_kernels());
      const GradientResult expected = run_with_gradient(plain_attention(op), kernels::reference_kernels());
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(same(found.out[i], expected.out[i])) << name_of(X) << " output " << i;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same(found.d_in[i], expected.d_in[i])) << name_of(X) << " gradient " << i;
    }
  }
}

// The absorbed form: one key of a cache for all heads, whose first elements are its value.
TEST(Selection, AttendsToACacheWhoseKeysHoldTheirValues) {
  const int64_t S = 10, h = 3, d = 7, v = 5, k = 4;
  OpCase op{"chosen_attention",
            "chosen_attention",
            {activation(random_tensor(Dtype::f64, {S, h * d}, 1)), activation(random_tensor(Dtype::f64, {S, d}, 2)),
             absent(), metadata(random_choice(1, S, k, {}, 3))},
            {{"heads", h}, {"kv_heads", 1}, {"head_dim", d}, {"value_dim", v}, {"sequence", S}, {"scale", 0.3}},
            {}};
  OpCase apart = op;
  apart.in[2] = activation(Tensor(Dtype::f64, {S, v}));
  for (int64_t s = 0; s < S; ++s)
    std::copy_n(op.in[1].tensor.values.begin() + s * d, v, apart.in[2].tensor.values.begin() + s * v);
  const OpResult expected = run_op(apart, kernels::reference_kernels());
  op.in.push_back({Tensor(Dtype::i32, {S}), Role::input});
  std::iota(op.in[4].tensor.values.begin(), op.in[4].tensor.values.end(), 0.0);
  EXPECT_TRUE(same(run_op(op, kernels::reference_kernels()).out[0], expected.out[0]));
  for (const Dtype K : {Dtype::f32, Dtype::bf16}) {
    OpCase narrow = op;
    narrow.in[0].tensor.dtype = Dtype::f32;
    narrow.in[1].tensor.dtype = K;
    EXPECT_TRUE(close(expected.out[0], run_op(narrow, kernels::host_kernels()).out[0], 2e-6)) << name_of(K);
  }
}

// Σ over heads of exp(scale · q·k − lse), written out.
TEST(Selection, SharesAreAsDefined) {
  for (const auto& [name, sizes] : loss_sizes()) {
    if (sizes.rank.tp > 1) continue;
    const OpCase op = sizes.share(name, Dtype::f64, 2);
    const auto at = [&](size_t operand, int64_t i) { return op.in[operand].tensor.values[static_cast<size_t>(i)]; };
    const int64_t d = sizes.width, of_list = sizes.columns() / sizes.list_count(), heads = sizes.h * sizes.group;
    const Tensor found = run_op(op, kernels::reference_kernels()).out[0];
    ASSERT_EQ(found.shape, (std::vector<int64_t>{sizes.rows(2), sizes.columns()})) << name;
    std::vector<double> expected(found.values.size());
    for (int64_t t = 0; t < sizes.rows(2); ++t) {
      const int64_t row0 = t / sizes.rank.own(sizes.S) * sizes.keys();
      sizes.for_each_key(op.in[3].tensor, t, [&](int64_t list, int64_t column, int64_t key) {
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t kv = head / sizes.group;
          if (sizes.lists && kv != list) continue;
          double dot = 0;
          for (int64_t i = 0; i < d; ++i)
            dot += at(0, (t * heads + head) * d + i) * at(1, ((row0 + key) * sizes.h + kv) * d + i);
          expected[static_cast<size_t>(t * sizes.columns() + list * of_list + column)] +=
              std::exp(0.4 * dot - at(2, t * heads + head));
        }
      });
    }
    EXPECT_TRUE(close(Tensor(Dtype::f64, found.shape, expected), found, 1e-12)) << name;
  }
}

// With the lse of attention, each share is what attention multiplies the key's value by. A sink has its part first.
TEST(Selection, SharesAreThoseOfAttention) {
  for (const bool sinks : {false, true}) {
    const LossSizes sizes{.S = 12, .chosen = 5, .group = 2, .width = 6};
    OpCase share = sizes.share("share", Dtype::f64, 2);
    for (const int64_t key : {0, 3}) {  // a value that is one at one key
      Tensor values(Dtype::f64, {2 * sizes.S, 2});
      values.values[static_cast<size_t>(2 * key)] = values.values[static_cast<size_t>(2 * key + 1)] = 1;
      OpCase attention = share;
      attention.kind = "chosen_attention";
      attention.attributes.set("value_dim", int64_t{1});
      attention.in = {share.in[0], share.in[1], activation(values), share.in[3]};
      if (sinks) attention.in.insert(attention.in.end(), {absent(), weight(random_tensor(Dtype::f64, {4}, 84))});
      const OpResult made = run_op(attention, kernels::reference_kernels());
      share.in[2].tensor = made.out[1];
      const Tensor found = run_op(share, kernels::reference_kernels()).out[0];
      for (int64_t t = 0; t < sizes.S; ++t) {
        double expected = 0, of_key = 0, sum = 0;
        for (int64_t head = 0; head < 4; ++head) expected += made.out[0].values[static_cast<size_t>(t * 4 + head)];
        for (int64_t j = 0; j < 5; ++j) {
          const auto at = static_cast<size_t>(t * 5 + j);
          sum += found.values[at];
          if (share.in[3].tensor.values[at] == static_cast<double>(key)) of_key = found.values[at];
        }
        EXPECT_NEAR(of_key, expected, 1e-12) << "row " << t << " key " << key;
        EXPECT_TRUE(sinks ? sum < 3.99 : std::abs(sum - 4) < 1e-12) << sum;
      }
    }
  }
}

// weight · Σ KL(share ÷ its sum ‖ softmax of the scores), written out.
TEST(Selection, TheLossIsTheDivergence) {
  for (const auto& [name, sizes] : loss_sizes()) {
    if (sizes.of_blocks) continue;
    const OpCase op = sizes.loss(name, Dtype::f64, 2);
    const auto at = [&](size_t operand, int64_t i) { return op.in[operand].tensor.values[static_cast<size_t>(i)]; };
    const int64_t h = sizes.h, d = 6, of_list = sizes.columns() / sizes.list_count();
    double loss = 0;
    for (int64_t t = 0; t < sizes.rows(2); ++t) {
      std::map<int64_t, std::vector<std::pair<double, double>>> lists;  // score, share
      const int64_t row0 = t / sizes.rank.own(sizes.S) * sizes.keys();
      sizes.for_each_key(op.in[5].tensor, t, [&](int64_t list, int64_t column, int64_t key) {
        double score = 0;
        for (int64_t head = 0; head < h; ++head) {
          if (sizes.lists && head != list) continue;
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += at(0, (t * h + head) * d + i) * at(1, (row0 + key) * d + i);
          score += 0.3 * (sizes.weighted ? at(2, t * h + head) : 1) * (sizes.lists ? dot : std::max(0.0, dot));
        }
        lists[list].emplace_back(score, at(3, t * sizes.columns() + list * of_list + column));
      });
      for (const auto& [list, keys] : lists) {
        double of_scores = 0, of_shares = 0;
        for (const auto& [score, share] : keys) of_scores += std::exp(score), of_shares += share;
        for (const auto& [score, share] : keys)
          loss += share / of_shares * std::log(share / of_shares / (std::exp(score) / of_scores));
      }
    }
    EXPECT_NEAR(run_op(op, kernels::reference_kernels()).out[0].values[0], 0.7 * loss, 1e-12) << name;
  }
}

// A row whose keys have no share, or which has no key, has no loss, and no gradient that is not a number.
TEST(Selection, ARowWithoutAShareHasNoLoss) {
  for (const auto* backend : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase op = LossSizes{.S = 18, .rate = 4}.loss("share of 0", Dtype::f32, 1);
    std::fill(op.in[3].tensor.values.begin(), op.in[3].tensor.values.end(), 0.0);
    const GradientResult found = run_with_gradient(op, *backend);
    EXPECT_EQ(found.out[0].values[0], 0);
    for (size_t i = 0; i < 3; ++i) {
      for (const double v : found.d_in[i].values) EXPECT_EQ(v, 0) << i;
    }
  }
}

class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

TEST(Selection, OnTheHostIsLikeReference) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    const double tolerance = X == Dtype::f32 ? 2e-5 : 0x1p-6;
    for (const auto& [name, sizes] : loss_sizes()) {
      if (sizes.rank.tp > 1) continue;
      const OpCase op = sizes.share(name, X, 2);
      const OpResult found = run_op(op, kernels::host_kernels());
      EXPECT_NE(found.ran[0].find(": host."), std::string::npos) << found.ran[0];
      EXPECT_TRUE(close(run_op(op, kernels::reference_kernels()).out[0], found.out[0], 2e-5)) << name;
    }
    for (const CaseMaker& maker : selection_cases()) {
      for (const int64_t B : {2, 0}) {
        const OpCase op = maker.make(X, B);
        if (maker.name.find("sinks") != std::string::npos) {  // the host has no kernel for their gradient
          const OpResult plain = run_op(op, kernels::reference_kernels()),
                         host = run_op(op, kernels::host_kernels());
          for (size_t i = 0; i < plain.out.size(); ++i)
            EXPECT_TRUE(close(plain.out[i], host.out[i], tolerance)) << maker.name << " output " << i;
          continue;
        }
        const GradientResult expected = run_with_gradient(op, kernels::reference_kernels());
        std::vector<GradientResult> found;
        for (const int count : {1, 3}) {
          const Threads threads(count);
          found.push_back(run_with_gradient(op, kernels::host_kernels()));
        }
        for (const std::string& ran : found[0].ran) EXPECT_NE(ran.find(": host."), std::string::npos) << ran;
        for (size_t i = 0; i < expected.out.size(); ++i) {
          EXPECT_TRUE(close(expected.out[i], found[0].out[i], tolerance)) << maker.name << " output " << i;
          EXPECT_TRUE(same(found[0].out[i], found[1].out[i])) << maker.name << " output " << i;
        }
        for (size_t i = 0; i < expected.d_in.size(); ++i) {
          EXPECT_TRUE(close(expected.d_in[i], found[0].d_in[i], tolerance)) << maker.name << " gradient " << i;
          EXPECT_TRUE(same(found[0].d_in[i], found[1].d_in[i])) << maker.name << " gradient " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
