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

std::vector<OpCase> share_cases(Dtype X) {
  std::vector<OpCase> all;
  for (const bool chosen : {true, false}) {
    for (const int kind : {0, 1, 2, 3}) {
      const int cp = 1 + kind % 2;
      const bool sinks = kind > 1;
      const int64_t S = 12, h = 4;
      const SelectionRank rank{.cp = cp, .cp_index = cp - 1};
      OpCase op{"attention_share",
                "attention_share",
                {activation(random_tensor(X, {2 * rank.own(S), h * 6}, 81)),
                 activation(random_tensor(X, {2 * S, 2 * 6}, 82)),
                 chosen ? metadata(random_choice(2, S, 5, rank, 83)) : absent(),
                 chosen ? absent() : Operand{document_starts(2, S), Role::input}},
                {{"heads", h}, {"kv_heads", 2}, {"head_dim", 6}, {"sequence", S}, {"scale", 0.4}},
                {}};
      if (sinks) op.in.push_back(weight(random_tensor(wide(X), {h}, 84)));
      rank.place(op);
      all.push_back(op);
    }
  }
  return all;
}

// The shares of all keys of a row add up to one a head, less what sinks take. Each is what attention multiplies the
// key's value by.
TEST(Selection, SharesAreThoseOfAttention) {
  for (OpCase op : share_cases(Dtype::f64)) {
    const Tensor share = run_op(op, kernels::reference_kernels()).out[0];
    const int64_t rows = share.shape[0], columns = share.shape[1], S = 12;
    for (int64_t t = 0; t < rows; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < columns; ++j) sum += share.values[static_cast<size_t>(t * columns + j)];
      if (op.in.size() == 4) {
        EXPECT_NEAR(sum, 4, 1e-12);
      } else {
        EXPECT_LT(sum, 3.99);
      }
    }
    if (!op.in[2].tensor.present) continue;
    OpCase attention = op;
    attention.kind = "chosen_attention";
    attention.attributes.set("value_dim", int64_t{1});
    for (int64_t key : {0, 3}) {  // a value that is one at one key
      Tensor values(Dtype::f64, {2 * S, 2});
      values.values[static_cast<size_t>(2 * key)] = values.values[static_cast<size_t>(2 * key + 1)] = 1;
      attention.in = {op.in[0], op.in[1], activation(values), op.in[2]};
      if (op.in.size() > 4) attention.in.insert(attention.in.end(), {absent(), op.in[4]});
      const Tensor o = run_op(attention, kernels::reference_kernels()).out[0];
      for (int64_t t = 0; t < rows / 2; ++t) {
        double expected = 0, found = 0;
        for (int64_t head = 0; head < 4; ++head) expected += o.values[static_cast<size_t>(t * 4 + head)];
        for (int64_t j = 0; j < columns; ++j) {
          if (op.in[2].tensor.values[static_cast<size_t>(t * columns + j)] == static_cast<double>(key))
            found = share.values[static_cast<size_t>(t * columns + j)];
        }
        EXPECT_NEAR(found, expected, 1e-12) << "row " << t << " key " << key;
      }
    }
  }
}

// weight · Σ KL(share ÷ its sum ‖ softmax of the scores), written out.
TEST(Selection, TheLossIsTheDivergence) {
  for (const CaseMaker& maker : selection_cases()) {
    if (maker.name != "index_loss_of_chosen" && maker.name != "index_loss_of_documents") continue;
    const OpCase op = maker.make(Dtype::f64, 2);
    const int64_t S = op.attributes.integer("sequence"), h = op.attributes.integer("heads"), d = 6;
    const auto at = [&](size_t operand, int64_t i) { return op.in[operand].tensor.values[static_cast<size_t>(i)]; };
    const bool chosen = op.in[5].tensor.present;
    double loss = 0;
    for (int64_t t = 0; t < 2 * S; ++t) {
      std::vector<std::pair<double, double>> keys;  // score, share
      const int64_t columns = op.in[3].tensor.shape[1];
      for (int64_t j = 0; j < columns; ++j) {
        const auto s = chosen ? static_cast<int64_t>(at(5, t * columns + j)) : j;
        if (s < 0 || s > t % S || (!chosen && s < static_cast<int64_t>(at(6, t)))) continue;
        double score = 0;
        for (int64_t head = 0; head < h; ++head) {
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += at(0, (t * h + head) * d + i) * at(1, (t / S * S + s) * d + i);
          score += 0.3 * at(2, t * h + head) * std::max(0.0, dot);
        }
        keys.emplace_back(score, at(3, t * columns + j));
      }
      double of_scores = 0, of_shares = 0;
      for (const auto& [score, share] : keys) of_scores += std::exp(score), of_shares += share;
      for (const auto& [score, share] : keys)
        loss += share / of_shares * std::log(share / of_shares / (std::exp(score) / of_scores));
    }
    EXPECT_NEAR(run_op(op, kernels::reference_kernels()).out[0].values[0], 0.7 * loss, 1e-12) << maker.name;
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
    for (const OpCase& op : share_cases(X)) {
      const OpResult found = run_op(op, kernels::host_kernels());
      EXPECT_TRUE(close(run_op(op, kernels::reference_kernels()).out[0], found.out[0], 2e-5)) << name_of(X);
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
