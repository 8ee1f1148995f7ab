// Ops that have no gradient, on the cuda backend against reference: the ends of a step, sums, copies, exact sums,
// the parts of a cut vocabulary. And: every op kind that computes has an entry.
#include <algorithm>
#include <set>

#include "heddle/backends/backend.h"
#include "heddle/base/numbers/split_float.h"
#include "heddle/kernels/exact_grid.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/by_id_cases.h"
#include "tests/kernels/compression_cases.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/recurrence_cases.h"

namespace heddle::op_runner {
namespace {

class StepOps : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
  static void like_reference(const OpCase& op, double tolerance, bool overwrite = false,
                             ir::Phase phase = ir::Phase::end) {
    const OpResult expected = run_op(op, kernels::reference_kernels(), overwrite, phase);
    const OpResult found = run_op(op, kernels::cuda_kernels(), overwrite, phase);
    EXPECT_NE(found.ran[0].find(": cuda."), std::string::npos) << found.ran[0];
    for (size_t i = 0; i < expected.out.size(); ++i) {
      EXPECT_TRUE(close(expected.out[i], found.out[i], tolerance)) << op.name << ", output " << i;
    }
    for (size_t i = 0; i < expected.updates.size(); ++i) {
      EXPECT_TRUE(close(expected.updates[i], found.updates[i], tolerance)) << op.name << ", update " << i;
    }
  }
};

TEST(CudaRegistry, lists_every_op_that_computes) {
  if (kernels::cuda_kernels().empty()) GTEST_SKIP() << "this build has no CUDA";
  for (const ir::OpDef* def : ops::all()) {
    if (ir::communicates(*def) || !ir::runs(*def) || comm::find_collective(comm::device_collectives(), def->kind))
      continue;
    const bool listed = std::any_of(kernels::cuda_kernels().begin(), kernels::cuda_kernels().end(),
                                    [&](const kernels::KernelEntry& k) { return k.op_kind == def->kind; });
    EXPECT_TRUE(listed) << def->kind;
  }
}

TEST(CudaRegistry, refuses_with_a_reason) {
  if (kernels::cuda_kernels().empty()) GTEST_SKIP() << "this build has no CUDA";
  ir::Listing listing;
  const ValueId x = listing.add_value({.name = "x", .dtype = Dtype::f64, .shape = {{4}, {4}}});
  const ir::Op op{.def = &ops::find("silu"), .in = {x}};
  std::vector<std::string> refusals;
  EXPECT_THROW(backends::named("cuda").select_kernel(listing, op, &refusals), ConfigError);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_NE(refusals[0].find("f64"), std::string::npos) << refusals[0];
}

TEST_F(StepOps, inputs) {
  std::vector<std::string> ran;
  const std::vector<double> numbers{1e-3, 0.1, 0.001, 0.25};
  EXPECT_EQ(load_numbers(kernels::cuda_kernels(), numbers, &ran).values, numbers);
  EXPECT_NE(ran[0].find(": cuda."), std::string::npos) << ran[0];
  EXPECT_EQ(load_numbers<int32_t>(kernels::cuda_kernels(), {4, -1, 0}).values, (std::vector<double>{4, -1, 0}));
}

TEST_F(StepOps, shift_ids) {
  OpCase shift{"shift_ids",
               "shift_ids",
               {metadata(Tensor(Dtype::i32, {5}, std::vector<double>{-1, 0, 3, 4, 9}))},
               {{"size", 4}, {"outside", 4}},
               {}};
  like_reference(shift, 0, false, ir::Phase::F);
}

// Choices by whole numbers, of which many scores are equal, over more positions than a block has threads; shares;
// and attention to what was chosen of a cache.
TEST_F(StepOps, selection) {
  constexpr int64_t kSequence = 150, kRows = 5;
  const auto numbers = [](Dtype dtype, std::vector<int64_t> shape, uint64_t seed) {
    Tensor t(dtype, std::move(shape));
    for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<double>(RandomKey(seed).bits(i) % 5) - 2;
    return activation(t);
  };
  const Operand places = metadata(Tensor(Dtype::i32, {kRows}, std::vector<double>{149, 0, -1, 150 + 70, 3}));
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t k : {1, 40}) {
      for (const int index : {0, 3}) {
        const SelectionRank rank{
            .cp = index > 0 ? 3 : 1, .cp_index = index / 2, .tp = index > 0 ? 5 : 1, .tp_index = index};
        const int64_t rows = 2 * rank.own(kSequence);
        OpCase choose{
            "choose",
            "choose_keys",
            {numbers(X, {rows, 3 * 4}, 1), numbers(X, {2 * kSequence, 4}, 2), numbers(Dtype::f32, {rows, 3}, 3),
             index > 0 ? Operand{document_starts(2, kSequence), Role::input} : absent()},
            {{"heads", 3}, {"head_dim", 4}, {"sequence", kSequence}, {"top_k", k}, {"scale", 0.25}},
            {}};
        rank.place(choose);
        like_reference(choose, 0, false, ir::Phase::F);
      }
      like_reference({"choose of a cache",
                      "choose_keys",
                      {numbers(X, {kRows, 3 * 4}, 1), numbers(X, {2 * kSequence, 4}, 2),
                       numbers(Dtype::f32, {kRows, 3}, 3), absent(), places},
                      {{"heads", 3}, {"head_dim", 4}, {"sequence", kSequence}, {"top_k", k}, {"scale", 0.25}},
                      {}},
                     0, false, ir::Phase::F);
    }
    const double tolerance = X == Dtype::f32 ? 2e-5 : 1e-2;
    const ir::Attributes at{{"heads", 4},     {"kv_heads", 2},         {"head_dim", 6},
                            {"value_dim", 5}, {"sequence", kSequence}, {"scale", 0.4}};
    for (const auto& [name, sizes] : loss_sizes()) {
      if (sizes.rank.tp > 1) continue;
      like_reference(sizes.share("share of " + name, X, 2), tolerance, false, ir::Phase::F);
    }
    ir::Attributes latent = at;
    latent.set("kv_heads", int64_t{1});
    Tensor of_rows(Dtype::i32, {kRows, 4}, -1);
    of_rows.values = {3, 70, 148, 149, 0, -1, -1, -1, 2, 5, -1, -1, 0, 1, 69, 70, 1, 3, -1, -1};
    const Operand anywhere = metadata(Tensor(Dtype::i32, {kRows}, std::vector<double>{149, 0, 5, 150 + 70, 3}));
    like_reference({"chosen of a cache",
                    "chosen_attention",
                    {activation(random_tensor(Dtype::f32, {kRows, 24}, 7)),
                     activation(random_tensor(X, {2 * kSequence, 6}, 8)), absent(), metadata(of_rows), anywhere},
                    latent,
                    {}},
                   tolerance, false, ir::Phase::F);
  }
}

// The choice of blocks of keys, also for rows of a cache; their means; attention to blocks of a cache.
TEST_F(StepOps, blocks_of_keys) {
  constexpr int64_t kSequence = 150, kRows = 5;
  const auto numbers = [](Dtype dtype, std::vector<int64_t> shape, uint64_t seed) {
    Tensor t(dtype, std::move(shape));
    for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<double>(RandomKey(seed).bits(i) % 5) - 2;
    return activation(t);
  };
  const Operand places = metadata(Tensor(Dtype::i32, {kRows}, std::vector<double>{149, 0, -1, 150 + 70, 3}));
  const ir::Attributes at{{"heads", 3},          {"head_dim", 4},       {"sequence", kSequence},
                          {"top_k", int64_t{5}}, {"block", int64_t{7}}, {"local", int64_t{1}}};
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const int index : {0, 1}) {
      const SelectionRank rank{.cp = index > 0 ? 3 : 1, .cp_index = index};
      OpCase choose{"choose blocks",
                    "choose_blocks",
                    {numbers(X, {2 * rank.own(kSequence), 3 * 4}, 1), numbers(X, {2 * kSequence, 4}, 2),
                     index > 0 ? Operand{document_starts(2, kSequence), Role::input} : absent()},
                    at,
                    {}};
      rank.place(choose);
      like_reference(choose, 0, false, ir::Phase::F);
    }
    like_reference({"choose blocks of a cache",
                    "choose_blocks",
                    {numbers(X, {kRows, 3 * 4}, 1), numbers(X, {2 * kSequence, 4}, 2), absent(), places},
                    at,
                    {}},
                   0, false, ir::Phase::F);
    const double tolerance = X == Dtype::f32 ? 2e-5 : 1e-2;
    like_reference({"means of blocks",
                    "compress_rows",
                    {activation(random_tensor(X, {2 * 23, 6}, 3)), absent(), absent(),
                     Operand{document_starts(2, 23), Role::input}},
                    {{"sequence", int64_t{23}}, {"rate", int64_t{4}}},
                    {}},
                   tolerance, false, ir::Phase::F);
    Tensor of_rows(Dtype::i32, {kRows, 2 * 2}, -1);
    of_rows.values = {0, 21, 3, 18, 0, -1, 0, -1, 0, -1, 0, -1, 1, 10, 0, 9, 0, -1, 0, -1};
    const Operand anywhere = metadata(Tensor(Dtype::i32, {kRows}, std::vector<double>{149, 0, 5, 150 + 70, 3}));
    like_reference(
        {"blocks of a cache",
         "chosen_attention",
         {activation(random_tensor(X, {kRows, 24}, 4)), activation(random_tensor(X, {2 * kSequence, 12}, 5)),
          activation(random_tensor(X, {2 * kSequence, 10}, 6)), metadata(of_rows), anywhere},
         {{"heads", 4},
          {"kv_heads", 2},
          {"head_dim", 6},
          {"value_dim", 5},
          {"sequence", kSequence},
          {"scale", 0.4},
          {"block", int64_t{7}},
          {"lists", int64_t{2}}},
         {}},
        tolerance, false, ir::Phase::F);
  }
}

// Lists of the window and of entries; entries of a cache; choices among entries.
TEST_F(StepOps, compressed_keys) {
  for (const Listed& of : lists_of_keys()) like_reference(of.make(), 0, false, ir::Phase::F);
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t series : {1, 2}) {
      OpCase op = compress_rows_case("entries of a cache", X, 2, {11, 3, series, 150, false});
      op.in.push_back(absent());
      op.in.push_back(metadata(Tensor(Dtype::i32, {6}, std::vector<double>{2, 0, -1, 8, 11 + 5, 11 + 10})));
      like_reference(op, X == Dtype::f32 ? 1e-5 : 1e-2, false, ir::Phase::F);
    }
    like_reference(
        {"choose among entries",
         "choose_keys",
         {activation(random_tensor(X, {2 * 21, 3 * 4}, 1)), activation(random_tensor(X, {2 * 5, 4}, 2)),
          activation(random_tensor(Dtype::f32, {2 * 21, 3}, 3)), Operand{document_starts(2, 21), Role::input}},
         {{"heads", 3},
          {"head_dim", 4},
          {"sequence", int64_t{21}},
          {"top_k", int64_t{2}},
          {"scale", 0.25},
          {"keys", int64_t{5}},
          {"rate", int64_t{4}}},
         {}},
        0, false, ir::Phase::F);
  }
}

TEST_F(StepOps, gates_of_one) {
  const Operand experts = metadata(random_routing(300, 1, 6, 1).experts);
  for (const char* dtype : {"f32", "bf16"})
    like_reference({"gates of one", "unit_gates", {experts}, {{"dtype", std::string(dtype)}}, {}}, 0, false,
                   ir::Phase::F);
}

TEST_F(StepOps, cache) {
  constexpr int64_t kSequence = 150, kRows = 5;  // more positions than a block has threads
  const Operand places = metadata(Tensor(Dtype::i32, {kRows}, std::vector<double>{149, 0, -1, 150 + 70, 3}));
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    const double tolerance = X == Dtype::f32 ? 1e-5 : 1e-2;
    const auto rows = [&](Dtype dtype, int64_t columns, uint64_t seed) {
      return activation(random_tensor(dtype, {kRows, columns}, seed));
    };
    const auto cached = [&](int64_t columns, uint64_t seed) {
      return metadata(random_tensor(X, {2 * kSequence, columns}, seed));
    };
    const ir::Attributes at{{"heads", 4},    {"head_dim", 6},         {"rope_dim", 4}, {"interleaved", 1},
                            {"kv_heads", 2}, {"value_dim", 5},        {"scale", 0.4},  {"runs", 1},
                            {"first", 3},    {"sequence", kSequence}, {"nope", 3},     {"rope", 2}};
    like_reference({"grouped", "cached_attention", {rows(X, 24, 1), places, cached(12, 2), cached(10, 3)}, at, {}},
                   tolerance, false, ir::Phase::F);
    ir::Attributes capped = at;
    capped.set("cap", 0.3);
    like_reference(
        {"capped", "cached_attention", {rows(X, 24, 1), places, cached(12, 2), cached(10, 3)}, capped, {}},
        tolerance, false, ir::Phase::F);
    ir::Attributes chunks = at;
    chunks.set("window", int64_t{40}).set("chunk", int64_t{40});
    like_reference(
        {"chunks", "cached_attention", {rows(X, 24, 1), places, cached(12, 2), cached(10, 3)}, chunks, {}},
        tolerance, false, ir::Phase::F);
    ir::Attributes latent = at;
    latent.set("kv_heads", int64_t{1});
    like_reference(
        {"latent", "cached_attention", {rows(Dtype::f32, 24, 1), places, cached(6, 2), absent()}, latent, {}},
        tolerance, false, ir::Phase::F);
    const Operand table = weight(rotation_table(Dtype::f32, kSequence, 4));
    ir::Attributes pairs = at;
    pairs.set("first", int64_t{1});
    like_reference({"pairs", "rope_at", {rows(X, 24, 1), table, places}, pairs, {}}, tolerance, false,
                   ir::Phase::F);
    ir::Attributes halves = pairs;
    halves.set("interleaved", int64_t{0});
    like_reference({"halves", "rope_at", {rows(X, 24, 1), table, places}, halves, {}}, tolerance, false,
                   ir::Phase::F);
    const Operand w = weight(random_tensor(X, {4 * (3 + 5), 7}, 4));
    like_reference({"absorb", "mla_absorb", {rows(X, 20, 1), w}, at, {}}, tolerance, false, ir::Phase::F);
    like_reference({"expand", "mla_expand", {rows(Dtype::f32, 28, 1), w}, at, {}}, tolerance, false, ir::Phase::F);
    const Operand down = weight(random_tensor(X, {3, 7}, 5)), up = weight(random_tensor(X, {4 * (3 + 5), 3}, 6));
    ir::Attributes beside = at;
    beside.set("factor", 1.5);
    like_reference({"absorb beside", "mla_absorb", {rows(X, 20, 1), w, down, up}, beside, {}}, tolerance, false,
                   ir::Phase::F);
    like_reference({"expand beside", "mla_expand", {rows(Dtype::f32, 28, 1), w, down, up}, beside, {}}, tolerance,
                   false, ir::Phase::F);
    like_reference({"keep", "cache_rows", {rows(X, 4, 1), places}, at, {cached(9, 5).tensor}}, 0, false,
                   ir::Phase::F);
    like_reference({"last", "last_rows", {rows(X, 4, 1), places}, at, {}}, 0, false, ir::Phase::F);
  }
}

TEST_F(StepOps, states) {
  const Operand places = metadata(Tensor(Dtype::i32, {6}, std::vector<double>{3, 0, -1, 1, 9 + 4, 9 + 5}));
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    const double tolerance = X == Dtype::f32 ? 1e-5 : 1e-2;
    for (const Recurrence& r : std::vector<Recurrence>{
             {"cached delta", 6, 4, 2, 37, 21, true, Decays::of_heads, Betas::sigmoid, true, false, true},
             {"cached channels", 6, 2, 2, 5, 3, true, Decays::of_channels, Betas::wide, true}}) {
      OpCase op = recurrence_case(r, X, 1);
      op.kind = "cached_recur";
      op.attributes.set("sequence", int64_t{9});
      op.in.back() = places;
      op.updates = {random_tensor(Dtype::f32, {2, r.h * r.dk * r.dv}, 5)};
      like_reference(op, tolerance, false, ir::Phase::F);
    }
    for (const int64_t apart : {1, 3}) {
      OpCase op = convolution_case("cached convolution", X, 1, 6, 150, 4, true, true, false, 1, apart);
      op.kind = "cached_conv";
      op.attributes.set("sequence", int64_t{9});
      op.in.back() = places;
      op.updates = {random_tensor(X, {2, 3 * apart * 150}, 6)};
      like_reference(op, tolerance, false, ir::Phase::F);
    }
  }
}

TEST_F(StepOps, states_from_piece_to_piece) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    expect_states_like_whole(X, kernels::cuda_kernels(), 24);
    expect_convolution_like_whole(X, kernels::cuda_kernels());
  }
}

TEST_F(StepOps, gradient_norm) {
  for (const int64_t count : {1, 1000, 70000}) {
    const Operand a = metadata(random_tensor(Dtype::f32, {count}, 1)),
                  b = metadata(random_tensor(Dtype::f32, {count}, 2));
    like_reference({"square_sum", "grad_square_sum", {a}, {}, {}}, 1e-12);
    like_reference({"square_sum of two", "grad_square_sum", {a, b}, {}, {}}, 1e-12);
    like_reference({"exact squares", "grad_square_sum_exact", {a}, {}, {}}, 0);
  }
  std::vector<Operand> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(metadata(Tensor(Dtype::f64, {1}, 1.0 + i)));
  like_reference({"sum_parts", "sum_parts", parts, {{"size", 1}}, {}}, 0);
  const Operand f64 = metadata(Tensor(Dtype::f64, {1}, 2.5));
  like_reference({"add f64", "add", {f64, f64}, {}, {}}, 0);
  for (const double most : {0.0, 1.0, 1e6}) {
    like_reference({"grad_norm", "grad_norm", parts, {{"max_norm", most}}, {}}, 1e-15);
  }
  const OpResult limbs =
      run_op({"", "grad_square_sum_exact", {metadata(random_tensor(Dtype::f32, {999}, 3))}, {}, {}},
             kernels::reference_kernels());
  like_reference({"norm of limbs", "grad_norm", {metadata(limbs.out[0]), parts[0]}, {{"max_norm", 1.0}}, {}},
                 1e-14);
  parts[3].tensor.values[0] = std::numeric_limits<double>::infinity();
  like_reference({"infinite norm", "grad_norm", {parts[1]}, {{"max_norm", 1.0}}, {}}, 1e-15);
  const OpResult stopped =
      run_op({"", "grad_norm", parts, {{"max_norm", 1.0}}, {}}, kernels::cuda_kernels(), false, ir::Phase::end);
  EXPECT_EQ(stopped.out[1].values[0], 0) << "nothing is to be updated";
}

TEST_F(StepOps, skip_outlier) {
  const double none = std::numeric_limits<double>::infinity();
  for (const double norm : {2.0, 4.0, none}) {
    for (const double loss : {5.0, 7.0, std::numeric_limits<double>::quiet_NaN()}) {
      for (const double limit : {3.0, none}) {
        const auto one = [](double value) { return metadata(Tensor(Dtype::f64, {1}, value)); };
        like_reference({fmt::format("skip_outlier {} {} {}", norm, loss, limit),
                        "skip_outlier",
                        {one(norm), one(0.5), metadata(random_tensor(Dtype::f64, {4}, 3)),
                         metadata(Tensor(Dtype::f64, {2}, std::vector<double>{limit, 6})), one(loss)},
                        {},
                        {}},
                       1e-15);
      }
    }
  }
}

TEST_F(StepOps, adamw) {
  for (const int64_t count : {1, 13, 4100}) {
    for (const bool copy : {false, true}) {
      for (const double clip : {0.5, 0.0}) {
        OpCase op{
            fmt::format("adamw {} {} {}", count, copy, clip),
            "adamw",
            {metadata(Tensor(Dtype::f64, {1}, clip)),
             metadata(Tensor(Dtype::f64, {3}, std::vector<double>{1e-2, 0.1, 0.05})),
             metadata(random_tensor(Dtype::f32, {count}, 4)), metadata(random_tensor(Dtype::f32, {count}, 5))},
            {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", copy ? 1 : 0}},
            {random_tensor(Dtype::f32, {count}, 6), random_tensor(Dtype::f32, {count}, 7),
             Tensor(Dtype::f32, {count}, 0.25)}};
        if (copy) op.updates.push_back(random_tensor(Dtype::bf16, {count}, 8));
        like_reference(op, copy ? 0x1p-8 : 1e-6);
        op.updates[1] = random_tensor(Dtype::bf16, {count}, 7);
        op.updates[2] = Tensor(Dtype::bf16, {count}, 0.25);
        like_reference(op, 0x1p-8);
        op.updates[1] = Tensor(Dtype::u8, {count}, 0x35);  // the next byte is one part in 53 of its number
        like_reference(op, 0x1p-5);
      }
    }
  }
}

// State has the same bits wherever it is updated, whole or split.
TEST_F(StepOps, adamw_rounds_as_the_host_does) {
  constexpr int64_t kCount = 4100;
  const auto numbers = [&](uint64_t seed, bool positive) {
    Tensor t(Dtype::f32, {kCount});
    const RandomKey key(seed);
    for (size_t i = 0; i < t.values.size(); ++i) {
      const auto x = static_cast<float>(key.normal(i));
      t.values[i] = positive ? std::abs(x) : x;
    }
    return t;
  };
  OpCase whole{"adamw as the host's",
               "adamw",
               {metadata(Tensor(Dtype::f64, {1}, 0.37)),
                metadata(Tensor(Dtype::f64, {3}, std::vector<double>{1.3e-2, 0.19, 0.0975})),
                metadata(numbers(1, false)), metadata(numbers(2, false))},
               {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", 1}},
               {numbers(3, false), numbers(4, false), numbers(5, true), Tensor(Dtype::bf16, {kCount}, 0)}};
  OpCase halves = whole;
  halves.kind = "adamw_split";
  halves.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}};
  halves.updates[0] = Tensor(Dtype::u16, {kCount});
  for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
    float master = static_cast<float>(whole.updates[0].values[i]);
    if (i % 5 == 0) master = std::bit_cast<float>((std::bit_cast<uint32_t>(master) & 0xffff0000u) | kHalfway);
    const SplitFloat parts = split(master);
    halves.updates[0].values[i] = parts.low;
    halves.updates[3].values[i] = static_cast<float>(parts.nearest);
    if (parts.up_at_half) halves.updates[2].values[i] *= -1;
  }
  OpCase rounded = whole;
  for (const size_t moment : {1, 2}) {
    Tensor& kept = rounded.updates[moment];
    kept.dtype = Dtype::bf16;
    for (double& x : kept.values) x = static_cast<float>(bf16(static_cast<float>(x)));
  }
  std::vector<OpCase> cases{whole, halves, rounded};
  for (const OpCase* wide : {&whole, &halves}) {  // with the moments of `rounded`, and with the first in bytes
    for (const bool packed : {false, true}) {
      OpCase& op = cases.emplace_back(*wide);
      op.name += packed ? ", moments in bytes" : ", rounded moments";
      op.updates[1] = rounded.updates[1];
      op.updates[2].dtype = Dtype::bf16;
      for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
        const double sign = std::signbit(op.updates[2].values[i]) ? -1.0 : 1.0;
        op.updates[2].values[i] = std::copysign(i % 50 == 0 ? 0.0 : rounded.updates[2].values[i], sign);
        if (packed) op.updates[1].values[i] = static_cast<double>(i % 127 + (i / 127 % 2) * 128);
      }
      if (packed) op.updates[1].dtype = Dtype::u8;
    }
  }
  for (const OpCase& op : cases) {
    const OpResult host = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
    const OpResult device = run_op(op, kernels::cuda_kernels(), false, ir::Phase::end);
    for (size_t i = 0; i < op.updates.size(); ++i)
      EXPECT_TRUE(same(host.updates[i], device.updates[i])) << op.name << ", update " << i;
  }
}

TEST_F(StepOps, casts_copies_and_sums) {
  const Tensor master = random_tensor(Dtype::f32, {3, 50}, 9, 1.7);
  like_reference({"cast_weight", "cast_weight", {weight(master)}, {}, {Tensor(Dtype::bf16, {3, 50})}}, 0);
  like_reference({"cast_weight f32", "cast_weight", {weight(master)}, {}, {Tensor(Dtype::f32, {3, 50})}}, 0);
  for (const bool overwrite : {false, true}) {
    for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
      like_reference({"accumulate",
                      "accumulate",
                      {activation(random_tensor(X, {5, 33}, 10))},
                      {},
                      {random_tensor(Dtype::f32, {5, 33}, 11)}},
                     0, overwrite, ir::Phase::F);
    }
    like_reference({"accumulate f64",
                    "accumulate",
                    {activation(Tensor(Dtype::f64, {1}, 2.5))},
                    {},
                    {Tensor(Dtype::f64, {1}, 0.25)}},
                   0, overwrite, ir::Phase::F);
    const Tensor offsets(Dtype::i32, {5}, std::vector<double>{0, 3, 3, 10, 12});
    like_reference({"count_load", "count_load", {metadata(offsets)}, {}, {Tensor(Dtype::f64, {4}, 7)}}, 0,
                   overwrite, ir::Phase::F);
  }
  like_reference({"router_bias_update",
                  "router_bias_update",
                  {metadata(Tensor(Dtype::f64, {4}, std::vector<double>{1, 2, 3, 2})),
                   metadata(Tensor(Dtype::f64, {4}, std::vector<double>{7, 7, 7, 0.25}))},
                  {},
                  {Tensor(Dtype::f32, {4}, 1.0)}},
                 0);
  like_reference({"router_bias_update_by_share",
                  "router_bias_update",
                  {metadata(Tensor(Dtype::f64, {4}, std::vector<double>{1, 2, 4, 1})),
                   metadata(Tensor(Dtype::f64, {4}, std::vector<double>{7, 7, 7, 0.25}))},
                  {{"by_share", 3}},
                  {Tensor(Dtype::f32, {4}, 1.0)}},
                 0);
}

TEST_F(StepOps, experts_by_token_id) {
  for (const ByIdSizes& sizes : kByIdSizes) like_reference(by_id_case(sizes, Dtype::f32), 0, false, ir::Phase::F);
}

// More rows than a block of the sort takes, and sequences of several parts.
TEST_F(StepOps, router_of_many_rows) {
  const int64_t T = 600, S = 300;
  like_reference({"router",
                  "router",
                  {activation(random_tensor(Dtype::f32, {T, 10}, 51, 2)), absent()},
                  {{"function", "sigmoid"},
                   {"top_k", 4},
                   {"groups", 1},
                   {"top_groups", 1},
                   {"group_score_top", 1},
                   {"normalize", 1},
                   {"scale", 1.0}},
                  {}},
                 2e-5, false, ir::Phase::F);
  Tensor s = random_tensor(Dtype::f32, {T, 10}, 52);
  for (double& v : s.values) v = std::abs(v) + 0.125;
  like_reference({"sequence_aux_loss",
                  "sequence_aux_loss",
                  {activation(s), {Tensor(Dtype::f32, {1}, 0.5), Role::input}},
                  {{"top_k", 4}, {"sequence", S}, {"alpha", 0.5}, {"scale_index", 0}},
                  {}},
                 2e-5, false, ir::Phase::F);
}

TEST_F(StepOps, exact_sums) {
  for (const bool overwrite : {false, true}) {
    like_reference({"add_exact",
                    "add_exact",
                    {activation(random_tensor(Dtype::f32, {300}, 12))},
                    {},
                    {Tensor(Dtype::f64, {300}, 0.5)}},
                   0, overwrite, ir::Phase::W);
    Tensor large = random_tensor(Dtype::f32, {8}, 13);
    large.values[3] = 33;  // not a number in both: compared by hand
    const OpResult found = run_op({"", "add_exact", {activation(large)}, {}, {Tensor(Dtype::f64, {8}, 0.5)}},
                                  kernels::cuda_kernels(), overwrite, ir::Phase::W);
    EXPECT_TRUE(std::isnan(found.updates[0].values[3]));
  }
  like_reference({"round_gradient",
                  "round_gradient",
                  {metadata(Tensor(Dtype::f64, {3}, std::vector<double>{1.25, 1e-3, -7})),
                   metadata(Tensor(Dtype::f64, {3}, 0.125))},
                  {{"dtype", "f32"}},
                  {}},
                 0);
  const Routing routing = random_routing(14, 2, 3, 5, {1});
  like_reference({"grouped_linear_wgrad_exact",
                  "grouped_linear_wgrad_exact",
                  {activation(random_tensor(Dtype::bf16, {28, 7}, 14)),
                   activation(random_tensor(Dtype::bf16, {28, 5}, 15)), metadata(routing.offsets), absent()},
                  {},
                  {Tensor(Dtype::f64, {3, 5, 7}, 0.5)}},
                 1e-6, false, ir::Phase::W);
  like_reference({"add_expert_bias_wgrad_exact",
                  "add_expert_bias_wgrad_exact",
                  {activation(random_tensor(Dtype::bf16, {28, 19}, 14)), metadata(routing.offsets), absent()},
                  {},
                  {Tensor(Dtype::f64, {3, 19}, 0.5)}},
                 1e-6, false, ir::Phase::W);
}

TEST_F(StepOps, large_products_take_several_tiles) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    const OpCase op{
        "linear of several tiles",
        "linear",
        {activation(random_tensor(X, {150, 200}, 16)), weight(random_tensor(X, {136, 200}, 17)), absent()},
        {{"wide", 0}},
        {}};
    const GradientResult expected = run_with_gradient(op, kernels::reference_kernels());
    const GradientResult found = run_with_gradient(op, kernels::cuda_kernels());
    EXPECT_TRUE(close(expected.out[0], found.out[0], X == Dtype::f32 ? 1e-6 : 0x1p-8));
    for (const size_t i : {size_t{0}, size_t{1}}) {
      EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], X == Dtype::f32 ? 1e-6 : 0x1p-8)) << i;
    }
  }
}

TEST_F(StepOps, attention_of_latent_heads) {
  // The widths of DeepSeek's heads, and more keys than two tiles.
  const int64_t S = 140;
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    const OpCase op{"192/128",
                    "attention",
                    {activation(random_tensor(X, {S, 192}, 18)), activation(random_tensor(X, {S, 192}, 19)),
                     activation(random_tensor(X, {S, 128}, 20))},
                    {{"heads", 1},
                     {"kv_heads", 1},
                     {"head_dim", 192},
                     {"value_dim", 128},
                     {"sequence", S},
                     {"causal", 1},
                     {"scale", 0.07}},
                    {}};
    const GradientResult expected = run_with_gradient(op, kernels::reference_kernels());
    const GradientResult found = run_with_gradient(op, kernels::cuda_kernels());
    const double tolerance = X == Dtype::f32 ? 1e-5 : 0x1p-6;
    EXPECT_TRUE(close(expected.out[0], found.out[0], tolerance));
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
      EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], tolerance)) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
