// Compressed keys: entries and lists of keys against their definition, written again; documents; what a cache makes
// against whole sequences; the host against reference, with any number of threads.
#include <omp.h>

#include "tests/kernels/compression_cases.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

// Σ over an entry's tokens of softmax(z + bias) · c, token by token from the first series of the window before.
TEST(Compression, makes_entries_as_defined) {
  for (const CaseMaker& maker : compression_cases()) {
    const OpCase op = maker.make(Dtype::f64, 2);
    if (op.kind != "compress_rows" || !op.in[1].tensor.present) continue;
    const int64_t S = op.attributes.integer("sequence"), m = op.attributes.integer("rate"),
                  series = op.attributes.integer("series"), columns = op.in[0].tensor.shape[1],
                  d = columns / series;
    const auto at = [&](size_t operand, int64_t row, int64_t column) {
      return op.in[operand].tensor.values[static_cast<size_t>(row * columns + column)];
    };
    const Tensor e = run_op(op, kernels::reference_kernels()).out[0];
    ASSERT_EQ(e.shape[0], 2 * (S / m)) << maker.name;
    for (int64_t r = 0; r < e.shape[0]; ++r) {
      const int64_t b = r / (S / m), entry = r % (S / m), last = (entry + 1) * m - 1;
      const auto start =
          op.in.size() > 3 ? static_cast<int64_t>(op.in[3].tensor.values[static_cast<size_t>(b * S + last)]) : 0;
      for (int64_t i = 0; i < d; ++i) {
        double sum = 0, weights = 0;
        for (int64_t s = 0; s < series; ++s) {
          for (int64_t j = 0; j < m; ++j) {
            const int64_t position = (entry - (series - 1 - s)) * m + j;
            if (position < start) continue;
            const double p = std::exp(at(1, b * S + position, s * d + i) + at(2, j, s * d + i));
            sum += p * at(0, b * S + position, s * d + i);
            weights += p;
          }
        }
        EXPECT_NEAR(e.values[static_cast<size_t>(r * d + i)], sum / weights, 1e-12) << maker.name;
      }
    }
  }
}

TEST(Compression, lists_the_window_and_the_entries_that_have_ended) {
  for (const Listed& of : lists_of_keys()) {
    const OpCase op = of.make();
    for (const auto* backend : {&kernels::reference_kernels(), &kernels::host_kernels()})
      EXPECT_EQ(run_op(op, *backend).out[0].values, of.expected()) << "S " << of.S << " m " << of.m;
  }
}

// Rows of a cache one by one make the entries that whole sequences have, where they complete one.
TEST(Compression, goes_on_from_a_cache) {
  for (const int64_t series : {1, 2}) {
    OpCase op = compress_rows_case("cache", Dtype::f64, 2, {11, 3, series, 4, false});
    const Tensor whole = run_op(op, kernels::reference_kernels()).out[0];
    Tensor places(Dtype::i32, {22});
    std::iota(places.values.begin(), places.values.end(), 0.0);
    places.values[21] = -1;
    op.in.push_back(absent());
    op.in.push_back(metadata(places));
    const Tensor found = run_op(op, kernels::reference_kernels()).out[0];
    for (int64_t t = 0; t < 22; ++t) {
      const bool ends = t < 21 && t % 11 % 3 == 2;
      for (int64_t i = 0; i < 4; ++i) {
        const double expected = ends ? whole.values[static_cast<size_t>((t / 11 * 3 + t % 11 / 3) * 4 + i)] : 0;
        EXPECT_EQ(found.values[static_cast<size_t>(t * 4 + i)], expected) << t;
      }
    }
    op = compress_rows_case("cache", Dtype::f32, 2, {11, 3, series, 4, false});
    op.in.push_back(absent());
    op.in.push_back(metadata(places));
    EXPECT_TRUE(close(found, run_op(op, kernels::host_kernels()).out[0], 2e-6));
  }
}

// An indexer of entries is drawn to the probability of an entry in attention to window, entries and sink.
TEST(Compression, ShareOfAnEntryIsThatOfAttention) {
  const Listed listed{.B = 1};
  const int64_t S = listed.S, m = listed.m, E = S / m, h = 3, d = 5;
  const Tensor seen = run_op(listed.make(), kernels::reference_kernels()).out[0];
  const Tensor joined = random_tensor(Dtype::f64, {S + E, d}, 91);
  Tensor entries(Dtype::f64, {E, d});
  std::copy_n(joined.values.begin() + S * d, E * d, entries.values.begin());
  OpCase attention{"attention",
                   "chosen_attention",
                   {activation(random_tensor(Dtype::f64, {S, h * d}, 92)), activation(joined), absent(),
                    metadata(seen), absent(), weight(random_tensor(Dtype::f64, {h}, 93))},
                   {{"heads", h},
                    {"kv_heads", 1},
                    {"head_dim", d},
                    {"value_dim", 1},
                    {"sequence", S},
                    {"scale", 0.4},
                    {"keys", S + E},
                    {"window", listed.window}},
                   {}};
  for (int64_t entry = 0; entry < E; ++entry) {  // a value that is one at one entry
    Tensor values(Dtype::f64, {S + E, 1});
    values.values[static_cast<size_t>(S + entry)] = 1;
    attention.in[2] = activation(values);
    const OpResult made = run_op(attention, kernels::reference_kernels());
    const OpCase share{
        "share",
        "attention_share",
        {attention.in[0], activation(entries), metadata(made.out[1])},
        {{"heads", h}, {"kv_heads", 1}, {"head_dim", d}, {"sequence", S}, {"scale", 0.4}, {"keys", E}, {"rate", m}},
        {}};
    const Tensor found = run_op(share, kernels::reference_kernels()).out[0];
    for (int64_t t = 0; t < S; ++t) {
      double expected = 0;
      for (int64_t head = 0; head < h; ++head) expected += made.out[0].values[static_cast<size_t>(t * h + head)];
      EXPECT_NEAR(found.values[static_cast<size_t>(t * E + entry)], expected, 1e-12) << t;
      EXPECT_EQ(expected > 0, (entry + 1) * m <= t + 1) << t;
    }
  }
}

class CompressionThreads {
 public:
  explicit CompressionThreads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~CompressionThreads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

TEST(Compression, on_the_host_is_like_reference) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    const double tolerance = X == Dtype::f32 ? 2e-5 : 0x1p-6;
    std::vector<CaseMaker> all = compression_cases();
    for (const EntrySizes& sizes : {EntrySizes{300, 128, 1, 65, false}, EntrySizes{150, 4, 2, 130, true}}) {
      all.push_back({fmt::format("entries of {}", sizes.m),
                     [=](Dtype type, int64_t B) { return compress_rows_case("entries", type, B, sizes); }});
    }
    for (const CaseMaker& maker : all) {
      for (const int64_t B : {2, 0}) {
        const OpCase op = maker.make(X, B);
        if (op.in.size() == 6) {  // the gradient of sinks has no kernel of the host's own
          const OpResult forward = run_op(op, kernels::reference_kernels()),
                         on_host = run_op(op, kernels::host_kernels());
          for (size_t i = 0; i < forward.out.size(); ++i)
            EXPECT_TRUE(close(forward.out[i], on_host.out[i], tolerance)) << maker.name << " output " << i;
          continue;
        }
        const GradientResult expected = run_with_gradient(op, kernels::reference_kernels());
        std::vector<GradientResult> found;
        for (const int count : {1, 3}) {
          const CompressionThreads threads(count);
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
