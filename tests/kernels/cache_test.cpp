// Going on from a cache: the host's kernels against the reference's, and these against what they stand for:
// attention over whole sequences, keys and values that are expanded, rotations by position.
#include <omp.h>

#include "heddle/backends/backend.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

constexpr int64_t kSequences = 3, kLength = 11;

/// Rows in no order, of all sequences; the third stands nowhere.
const std::vector<double> kPlaces{10, 0, -1, 22 + 4, 11 + 10, 5};
Tensor places() { return {Dtype::i32, {std::ssize(kPlaces)}, kPlaces}; }
int64_t rows() { return std::ssize(kPlaces); }

struct Heads {
  int64_t heads, kv_heads, head_dim, value_dim;
  bool apart = true;  // values beside the keys
  int64_t window = 0;
  bool sinks = false;
  double cap = 0;
  int64_t chunk = 0;
};

OpCase attention_case(Dtype X, const Heads& h, Dtype Q) {
  OpCase op{"cached_attention", "cached_attention", {}, {}, {}};
  op.in = {activation(random_tensor(Q, {rows(), h.heads * h.head_dim}, 1)),
           {places(), Role::input},
           {random_tensor(X, {kSequences * kLength, h.kv_heads * h.head_dim}, 2), Role::cache}};
  op.in.push_back(h.apart
                      ? Operand{random_tensor(X, {kSequences * kLength, h.kv_heads * h.value_dim}, 3), Role::cache}
                      : absent());
  op.attributes = {{"heads", h.heads},         {"kv_heads", h.kv_heads}, {"head_dim", h.head_dim},
                   {"value_dim", h.value_dim}, {"sequence", kLength},    {"scale", 0.3},
                   {"window", h.window}};
  if (h.sinks) op.in.push_back(weight(random_tensor(wide(X), {h.heads}, 6)));
  if (h.cap > 0) op.attributes.set("cap", h.cap);
  if (h.chunk > 0) op.attributes.set("chunk", h.chunk);
  return op;
}

/// `rank`: of an adapter beside the weight, 0: there is none.
OpCase latent_case(const char* kind, Dtype X, int64_t h, int64_t n, int64_t r, int64_t v, int64_t c,
                   int64_t rank = 0) {
  const bool absorbs = std::string_view(kind) == "mla_absorb";
  OpCase op{kind,
            kind,
            {activation(random_tensor(absorbs ? X : wide(X), {rows(), h * (absorbs ? n + r : c)}, 4)),
             weight(random_tensor(X, {h * (n + v), c}, 5))},
            {{"heads", h}, {"nope", n}, {"rope", r}, {"value_dim", v}},
            {}};
  if (rank == 0) return op;
  op.in.push_back(weight(random_tensor(X, {rank, c}, 6)));
  op.in.push_back(weight(random_tensor(X, {h * (n + v), rank}, 7)));
  op.attributes.set("factor", 1.5);
  return op;
}

const std::vector<Heads> kShapes{{1, 1, 1, 1},
                                 {4, 2, 6, 6},
                                 {6, 2, 17, 5},
                                 {3, 1, 40, 33, false},
                                 {8, 8, 64, 64},
                                 {4, 2, 6, 6, true, 4},
                                 {6, 2, 17, 5, true, 0, true},
                                 {4, 1, 9, 8, false, 1, true},
                                 {6, 2, 17, 5, true, 4, true, 0.4},
                                 {6, 2, 17, 5, true, 4, true, 0, 4},
                                 {4, 2, 6, 6, true, 1, false, 0, 1}};

double tolerance(Dtype X) { return X == Dtype::bf16 ? 8e-3 : X == Dtype::f32 ? 2e-6 : 1e-13; }

void expect_close(const Tensor& expected, const Tensor& found, double tolerance, const std::string& what) {
  ASSERT_EQ(expected.values.size(), found.values.size()) << what;
  double most = 1e-3;
  for (const double x : expected.values) most = std::max(most, std::abs(x));
  for (size_t i = 0; i < expected.values.size(); ++i)
    ASSERT_NEAR(expected.values[i], found.values[i], tolerance * most) << what << ", element " << i;
}

void like_reference(const OpCase& op, Dtype X) {
  const OpResult expected = run_op(op, kernels::reference_kernels());
  OpResult first;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    const OpResult found = run_op(op, kernels::host_kernels());
    EXPECT_NE(found.ran[0].find("host.highway"), std::string::npos) << found.ran[0];
    expect_close(expected.out[0], found.out[0], tolerance(X), op.name);
    if (threads == 1) first = found;
    EXPECT_EQ(found.out[0].values, first.out[0].values) << op.name << " on " << threads << " threads";
  }
  omp_set_num_threads(2);
}

TEST(Cache, HostAttendsAsReference) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const Heads& h : kShapes) {
      like_reference(attention_case(X, h, X), X);
      like_reference(attention_case(X, h, wide(X)), X);
    }
    for (const int64_t c : {1, 16, 37}) {
      like_reference(latent_case("mla_absorb", X, 3, 5, 2, 7, c), X);
      like_reference(latent_case("mla_expand", X, 3, 5, 2, 7, c), X);
      for (const int64_t rank : {1, 5, 24}) {
        like_reference(latent_case("mla_absorb", X, 3, 5, 2, 7, c, rank), X);
        like_reference(latent_case("mla_expand", X, 3, 5, 2, 7, c, rank), X);
      }
    }
  }
}

// An adapter beside the weight is the weight with the product of its matrices added.
TEST(Cache, AnAdapterIsWhatItWouldBeMerged) {
  const int64_t h = 3, n = 5, v = 7, c = 16, rank = 4;
  for (const char* kind : {"mla_absorb", "mla_expand"}) {
    const OpCase apart = latent_case(kind, Dtype::f64, h, n, 2, v, c, rank);
    OpCase merged = latent_case(kind, Dtype::f64, h, n, 2, v, c);
    const std::vector<double>&down = apart.in[2].tensor.values, &up = apart.in[3].tensor.values;
    for (int64_t row = 0; row < h * (n + v); ++row) {
      for (int64_t k = 0; k < c; ++k) {
        double& w = merged.in[1].tensor.values[static_cast<size_t>(row * c + k)];
        for (int64_t s = 0; s < rank; ++s)
          w += 1.5 * up[static_cast<size_t>(row * rank + s)] * down[static_cast<size_t>(s * c + k)];
      }
    }
    expect_close(run_op(merged, kernels::reference_kernels()).out[0],
                 run_op(apart, kernels::reference_kernels()).out[0], 1e-12, kind);
  }
}

// Of each row the bits depend on nothing beside it.
TEST(Cache, ARowIsTheSameBesideAnyOther) {
  const Heads h{4, 2, 24, 24};
  const OpCase all = attention_case(Dtype::f32, h, Dtype::f32);
  const Tensor together = run_op(all, kernels::host_kernels()).out[0];
  const auto width = static_cast<size_t>(h.heads * h.value_dim);
  for (size_t t = 0; t < kPlaces.size(); ++t) {
    OpCase one = all;
    const std::vector<double>& q = all.in[0].tensor.values;
    const auto q_width = static_cast<std::ptrdiff_t>(h.heads * h.head_dim), at = static_cast<std::ptrdiff_t>(t);
    one.in[0].tensor = Tensor(Dtype::f32, {1, h.heads * h.head_dim},
                              std::vector(q.begin() + at * q_width, q.begin() + (at + 1) * q_width));
    one.in[1].tensor = Tensor(Dtype::i32, {1}, std::vector{kPlaces[t]});
    const Tensor alone = run_op(one, kernels::host_kernels()).out[0];
    for (size_t i = 0; i < width; ++i) ASSERT_EQ(alone.values[i], together.values[t * width + i]) << "row " << t;
  }
}

// Row t of whole causal attention is that of a row at place t; one that stands nowhere is zeros.
void attends_as_whole_sequences(const Heads& h) {
  const int64_t all = kSequences * kLength;
  const Tensor q = random_tensor(Dtype::f64, {all, h.heads * h.head_dim}, 7);
  OpCase cached = attention_case(Dtype::f64, h, Dtype::f64);
  OpCase whole{"attention", "attention", {activation(q), cached.in[2], cached.in[3]}, cached.attributes, {}};
  whole.attributes.set("causal", int64_t{1});
  if (h.sinks || h.chunk > 0) whole.in.push_back(absent());
  if (h.sinks) whole.in.push_back(cached.in[4]);
  if (h.chunk > 0) {  // where each position's chunk begins
    std::vector<double> starts;
    for (int64_t t = 0; t < all; ++t) starts.push_back(static_cast<double>(t % kLength / h.chunk * h.chunk));
    whole.in[3] = {Tensor(Dtype::i32, {all}, starts), Role::input};
  }
  const Tensor expected = run_op(whole, kernels::reference_kernels()).out[0];
  const auto q_width = static_cast<size_t>(h.heads * h.head_dim),
             width = static_cast<size_t>(h.heads * h.value_dim);
  for (size_t t = 0; t < kPlaces.size(); ++t) {
    for (size_t i = 0; i < q_width && kPlaces[t] >= 0; ++i)
      cached.in[0].tensor.values[t * q_width + i] = q.values[static_cast<size_t>(kPlaces[t]) * q_width + i];
  }
  const Tensor found = run_op(cached, kernels::reference_kernels()).out[0];
  for (size_t t = 0; t < kPlaces.size(); ++t) {
    for (size_t i = 0; i < width; ++i) {
      const double there = kPlaces[t] < 0 ? 0 : expected.values[static_cast<size_t>(kPlaces[t]) * width + i];
      ASSERT_NEAR(found.values[t * width + i], there, 1e-12) << "row " << t;
    }
  }
}

TEST(Cache, AttentionIsThatOfWholeSequences) {
  attends_as_whole_sequences({6, 2, 5, 7});
  attends_as_whole_sequences({6, 2, 5, 7, true, 3});
  attends_as_whole_sequences({6, 2, 5, 7, true, 4, true});
  attends_as_whole_sequences({6, 2, 5, 7, true, 4, true, 0.4});
  attends_as_whole_sequences({6, 2, 5, 7, true, 4, true, 0, 4});
  attends_as_whole_sequences({6, 2, 5, 7, true, 3, false, 0, 3});
}

// Absorbed queries on latents give what queries give on keys and values made of the latents.
TEST(Cache, AbsorbedIsExpanded) {
  const int64_t h = 3, n = 4, r = 2, v = 5, c = 7, C = kSequences * kLength;
  const Dtype X = Dtype::f64;
  const ir::Attributes heads{{"heads", h}, {"nope", n}, {"rope", r}, {"value_dim", v}};
  const OpCase absorb = latent_case("mla_absorb", X, h, n, r, v, c);
  const Tensor latent = random_tensor(X, {C, c}, 8), k_rope = random_tensor(X, {C, r}, 9);
  Tensor cache(X, {C, c + r});
  for (int64_t row = 0; row < C; ++row) {
    for (int64_t i = 0; i < c + r; ++i) {
      cache.values[static_cast<size_t>(row * (c + r) + i)] =
          i < c ? latent.values[static_cast<size_t>(row * c + i)]
                : k_rope.values[static_cast<size_t>(row * r + i - c)];
    }
  }
  const auto attend = [&](const Tensor& q, const Tensor& keys, const Tensor& values, const Heads& shape) {
    OpCase op = attention_case(X, shape, X);
    op.in[0].tensor = q;
    op.in[2].tensor = keys;
    op.in[3].tensor = values;
    return run_op(op, kernels::reference_kernels()).out[0];
  };
  const Tensor absorbed = run_op(absorb, kernels::reference_kernels()).out[0];
  OpCase expand = latent_case("mla_expand", X, h, n, r, v, c);
  expand.in[0].tensor = attend(absorbed, cache, {}, {h, 1, c + r, c, false});
  const Tensor found = run_op(expand, kernels::reference_kernels()).out[0];

  const Tensor& w = absorb.in[1].tensor;
  const OpCase project{"linear", "linear", {activation(latent), weight(w), absent()}, {{"wide", 0}}, {}};
  const Tensor kv = run_op(project, kernels::reference_kernels()).out[0];
  const OpResult assembled =
      run_op({"mla_assemble", "mla_assemble", {activation(kv), activation(k_rope)}, heads, {}},
             kernels::reference_kernels());
  const Tensor expected = attend(absorb.in[0].tensor, assembled.out[0], assembled.out[1], {h, h, n + r, v});
  expect_close(expected, found, 1e-12, "absorbed");
}

TEST(Cache, RotatesByPosition) {
  for (const int64_t interleaved : {0, 1}) {
    const Tensor table = rotation_table(Dtype::f64, kLength, 4);
    const ir::Attributes attributes{
        {"heads", 2},  {"head_dim", 7}, {"rope_dim", 4}, {"sequence", kLength}, {"interleaved", interleaved},
        {"inverse", 0}};
    const Tensor x = random_tensor(Dtype::f64, {kSequences * kLength, 14}, 6);
    const Tensor expected =
        run_op({"rope", "rope", {activation(x), weight(table)}, attributes, {}}, kernels::reference_kernels())
            .out[0];
    Tensor some(Dtype::f64, {rows(), 14});
    for (size_t t = 0; t < kPlaces.size(); ++t) {
      for (size_t i = 0; i < 14 && kPlaces[t] >= 0; ++i)
        some.values[t * 14 + i] = x.values[static_cast<size_t>(kPlaces[t]) * 14 + i];
    }
    const Tensor found =
        run_op({"rope_at", "rope_at", {activation(some), weight(table), {places(), Role::input}}, attributes, {}},
               kernels::reference_kernels())
            .out[0];
    for (size_t t = 0; t < kPlaces.size(); ++t) {
      for (size_t i = 0; i < 14 && kPlaces[t] >= 0; ++i)
        ASSERT_EQ(found.values[t * 14 + i], expected.values[static_cast<size_t>(kPlaces[t]) * 14 + i]);
    }
  }
}

TEST(Cache, KeepsRowsInTheirPlacesAndNothingElse) {
  const Tensor x = random_tensor(Dtype::bf16, {rows(), 3}, 1), before = random_tensor(Dtype::bf16, {33, 5}, 2);
  const OpCase op{"cache_rows", "cache_rows", {activation(x), {places(), Role::input}}, {{"first", 1}}, {before}};
  const Tensor after = run_op(op, kernels::reference_kernels()).updates[0];
  Tensor expected = before;
  for (size_t t = 0; t < kPlaces.size(); ++t) {
    for (size_t i = 0; i < 3 && kPlaces[t] >= 0; ++i)
      expected.values[static_cast<size_t>(kPlaces[t]) * 5 + 1 + i] = x.values[t * 3 + i];
  }
  EXPECT_EQ(after.values, expected.values);
}

TEST(Cache, TakesTheLastRowOfEachRun) {
  const Tensor x = random_tensor(Dtype::f32, {6, 2}, 1), where(Dtype::i32, {6}, {3, 4, -1, -1, -1, -1});
  const OpCase op{"last_rows", "last_rows", {activation(x), {where, Role::input}}, {{"runs", 2}}, {}};
  const std::vector<double> found = run_op(op, kernels::reference_kernels()).out[0].values;
  EXPECT_EQ(found, (std::vector{x.values[2], x.values[3], 0.0, 0.0}));
}

}  // namespace
}  // namespace heddle::op_runner
