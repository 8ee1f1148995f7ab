// The CPU kernels that move rows (rope, MLA's assembly, permute, embedding) and the end of a step, against
// reference.
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

class HostRows : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostRows, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

struct RopeSizes {
  int64_t B, S, h, n, r, v;
};
// Rope dims below a vector's pairs, around and above; two threads in the last.
constexpr RopeSizes kRopes[] = {
    {0, 5, 2, 3, 4, 5}, {2, 5, 3, 5, 2, 3}, {1, 7, 2, 33, 36, 17}, {2, 9, 4, 64, 64, 64}, {2, 33, 8, 128, 64, 128}};

TEST_P(HostRows, rope) {
  const Dtype X = GetParam();
  for (const auto& [B, S, h, n, r, v] : kRopes) {
    for (const int64_t interleaved : {0, 1}) {
      for (const int64_t inverse : {0, 1}) {
        expect_gradient_like_reference(
            {fmt::format("rope S{} h{} d{} r{} interleaved{} inverse{}", S, h, n + r, r, interleaved, inverse),
             "rope",
             {activation(random_tensor(X, {B * S, h * (n + r)}, 1)), metadata(rotation_table(Dtype::f32, S, r))},
             {{"heads", h},
              {"head_dim", n + r},
              {"rope_dim", r},
              {"sequence", S},
              {"interleaved", interleaved},
              {"inverse", inverse}},
             {}},
            stream_tolerance(X));
      }
    }
  }
}

TEST_P(HostRows, experts_without_computation) {
  const Dtype X = GetParam();
  for (const auto& [T, H, k, first] :
       {std::array<int64_t, 4>{0, 5, 2, 4}, {7, 19, 3, 4}, {5, 64, 6, 0}, {33, 1029, 2, 6}}) {
    expect_gradient_like_reference(
        {fmt::format("zero_experts T{} H{} k{} first{}", T, H, k, first),
         "zero_experts",
         {activation(random_tensor(X, {T, H}, 1)), activation(random_tensor(Dtype::f32, {T, k}, 2)),
          metadata(random_routing(T, k, 6, 3).experts)},
         {{"first", first}},
         {}},
        stream_tolerance(X));
  }
}

TEST_P(HostRows, scaled_by_an_operand) {
  const Dtype X = GetParam();
  for (const auto& [T, H] : {std::array<int64_t, 2>{0, 5}, {7, 19}, {33, 1029}}) {
    expect_gradient_like_reference(
        {fmt::format("scale_by T{} H{}", T, H),
         "scale_by",
         {activation(random_tensor(X, {T, H}, 1)), metadata(random_tensor(Dtype::f32, {1}, 2))},
         {},
         {}},
        stream_tolerance(X));
  }
  for (const auto& [T, H] : {std::array<int64_t, 2>{0, 5}, {7, 19}, {33, 1029}}) {
    expect_gradient_like_reference(
        {fmt::format("scale_by rows T{} H{}", T, H),
         "scale_by",
         {activation(random_tensor(X, {T, H}, 1)), metadata(random_tensor(Dtype::f32, {T}, 2))},
         {},
         {}},
        stream_tolerance(X));
  }
  for (const auto& [T, k] : {std::array<int64_t, 2>{0, 2}, {7, 3}, {133, 6}}) {
    expect_gradient_like_reference(
        {fmt::format("scale_by T{} k{}", T, k),
         "scale_by",
         {activation(random_tensor(Dtype::f32, {T, k}, 1)), weight(random_tensor(Dtype::f32, {6}, 2)),
          metadata(random_routing(T, k, 6, 3).experts)},
         {},
         {}},
        stream_tolerance(X));
  }
}

TEST_P(HostRows, mla) {
  const Dtype X = GetParam();
  for (const auto& [B, S, h, n, r, v] : kRopes) {
    const int64_t T = B * S;
    const Operand q = activation(random_tensor(X, {T, h * (n + r)}, 2)),
                  kr = activation(random_tensor(X, {T, r}, 3));
    const Operand kv = activation(random_tensor(X, {T, h * (n + v)}, 4));
    ir::Attributes at{{"heads", h}, {"nope", n}, {"rope", r}, {"value_dim", v}};
    const std::string size = fmt::format(" T{} h{} n{} r{} v{}", T, h, n, r, v);
    expect_gradient_like_reference({"mla_assemble" + size, "mla_assemble", {kv, kr}, at, {}}, stream_tolerance(X));
    for (const int64_t interleaved : {0, 1}) {
      at.set("sequence", S).set("interleaved", interleaved);
      expect_gradient_like_reference({fmt::format("mla_rope{} interleaved{}", size, interleaved),
                                      "mla_rope",
                                      {q, kv, kr, metadata(rotation_table(Dtype::f32, S, r))},
                                      at,
                                      {}},
                                     stream_tolerance(X));
    }
  }
}

TEST_P(HostRows, permute_and_back) {
  const Dtype X = GetParam();
  struct Sizes {
    int64_t T, k, E, H;
  };
  for (const auto& [T, k, E, H] : {Sizes{0, 2, 4, 8}, {5, 3, 6, 7}, {33, 1, 4, 100}, {130, 8, 16, 264}}) {
    const Routing routing = random_routing(T, k, E, 5, {1});
    const std::string size = fmt::format(" T{} k{} H{}", T, k, H);
    const Operand x = activation(random_tensor(X, {T, H}, 6)), y = activation(random_tensor(X, {T * k, H}, 7));
    const Operand g = activation(random_tensor(Dtype::f32, {T, k}, 8));
    expect_gradient_like_reference(
        {"permute" + size,
         "permute",
         {x, metadata(routing.row_of), metadata(routing.token_of), metadata(routing.experts)},
         {},
         {}},
        stream_tolerance(X));
    for (const Operand& residual : {absent(), x}) {
      expect_gradient_like_reference({"unpermute" + size,
                                      "unpermute",
                                      {y, g, metadata(routing.row_of), metadata(routing.experts), residual},
                                      {},
                                      {}},
                                     stream_tolerance(X));
    }
  }
}

// Rows in the order of their tokens weigh as unpermute_dgrad weighs them, to the bit.
TEST_P(HostRows, weighing_received_rows) {
  const Dtype X = GetParam();
  for (const auto& [S, H] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {33, 100}, {700, 264}}) {
    const Operand dr = activation(random_tensor(X, {S, H}, 21)), e = activation(random_tensor(X, {S, H}, 22));
    const Tensor g = random_tensor(Dtype::f32, {S}, 23);
    const OpCase op{"", "weigh_dgrad", {dr, e, activation(g)}, {}, {}};
    const auto found = run_op(op, kernels::host_kernels()).out;
    const auto expected = run_op(op, kernels::reference_kernels()).out;
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(close(expected[i], found[i], stream_tolerance(X))) << S << " rows, " << i;
    Tensor in_place(Dtype::i32, {S, 1}), g_Tk(Dtype::f32, {S, 1}, g.values);
    for (size_t s = 0; s < in_place.values.size(); ++s) in_place.values[s] = static_cast<double>(s);
    const auto unpermuted = run_op({"", "unpermute_dgrad", {dr, e, activation(g_Tk), metadata(in_place)}, {}, {}},
                                   kernels::host_kernels())
                                .out;
    EXPECT_EQ(found[0].values, unpermuted[0].values);
    EXPECT_EQ(found[1].values, unpermuted[1].values);
  }
}

TEST_P(HostRows, embedding) {
  const Dtype X = GetParam();
  struct Sizes {
    int64_t T, V, H;
  };
  // Many tokens on few ids, few on many, columns across slices, nothing but masked ids.
  for (const auto& [T, V, H] : {Sizes{0, 3, 5}, {70, 2, 9}, {40, 1000, 33}, {300, 700, 523}}) {
    for (const bool masked : {false, true}) {
      expect_gradient_like_reference(
          {fmt::format("embedding T{} V{} H{}", T, V, H),
           "embedding",
           {Operand{random_labels(T, V, 9, masked), Role::input}, weight(random_tensor(X, {V, H}, 10))},
           {},
           {}},
          stream_tolerance(X));
    }
  }
  Tensor ids(Dtype::i32, {2}, std::vector<double>{0, 4});
  const OpCase beyond{"", "embedding", {Operand{ids, Role::input}, weight(random_tensor(X, {4, 3}, 11))}, {}, {}};
  EXPECT_THROW(run_op(beyond, kernels::host_kernels()), InternalError);
}

TEST_P(HostRows, adamw) {
  const Dtype X = GetParam();
  const auto f64 = [](std::vector<double> values) {
    const auto count = std::ssize(values);
    return Operand{Tensor(Dtype::f64, {count}, std::move(values)), Role::metadata};
  };
  for (const int64_t count : {0, 1, 37, 40000}) {
    for (const int uses : {1, 2}) {
      for (const int64_t copy : {0, 1}) {
        for (const double clip : {0.5, 0.0}) {
          OpCase op{fmt::format("adamw {} uses {} copy {} clip {}", count, uses, copy, clip),
                    "adamw",
                    {f64({clip}), f64({1e-2, 0.1, 0.05})},
                    {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", copy}},
                    {}};
          for (int u = 0; u < uses; ++u) {
            op.in.push_back(
                {random_tensor(Dtype::f32, {count, 1}, 20 + static_cast<uint64_t>(u)), Role::accumulator});
          }
          for (uint64_t state = 0; state < 3; ++state) {
            op.updates.push_back(random_tensor(Dtype::f32, {count, 1}, 30 + state));
          }
          for (double& v : op.updates[2].values) v = std::abs(v);
          if (copy) op.updates.push_back(Tensor(X, {count, 1}, 7));
          // The new master cancels against the step now and then, so the bound is on the largest element.
          expect_like_reference(op, stream_tolerance(copy ? X : Dtype::f32), false, ir::Phase::end);
        }
      }
    }
  }
}

TEST_P(HostRows, norm_and_cast) {
  for (const int64_t count : {0, 1, 37, 50000}) {
    const Tensor a = random_tensor(Dtype::f32, {count}, 40), b = random_tensor(Dtype::f32, {count}, 41);
    for (const bool two : {false, true}) {
      OpCase op{fmt::format("grad_square_sum {}", count), "grad_square_sum", {{a, Role::accumulator}}, {}, {}};
      if (two) op.in.push_back({b, Role::accumulator});
      expect_like_reference(op, 1e-14, false, ir::Phase::end);
    }
    Tensor fine = a;
    for (size_t i = 0; i < fine.values.size(); ++i) fine.values[i] += 1e-3 * b.values[i];
    expect_like_reference({fmt::format("cast_weight {}", count),
                           "cast_weight",
                           {{fine, Role::optimizer}},
                           {},
                           {Tensor(GetParam(), {count}, 7)}},
                          0, false, ir::Phase::end);
  }
  for (const double max_norm : {0.0, 1.0}) {
    for (const double part : {16.0, std::numeric_limits<double>::infinity()}) {
      const OpCase op{
          "grad_norm",
          "grad_norm",
          {{Tensor(Dtype::f64, {1}, part), Role::metadata}, {Tensor(Dtype::f64, {1}, 9), Role::metadata}},
          {{"max_norm", max_norm}},
          {}};
      const OpResult expected = run_op(op, kernels::reference_kernels(), false, ir::Phase::end);
      const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
      expect_same(expected, found, "grad_norm");
    }
  }
}

TEST(HostRounding, is_that_of_dtype_h_for_every_upper_half_and_each_kind_of_lower_half) {
  // Denormals, infinities and NaN with every payload included; the lower halves stand around the tie.
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const auto count = std::ssize(values);
  std::vector<bf16> found(values.size());
  const ir::Op op{.def = &ops::find("cast_weight")};
  const device::TensorView in{.data = values.data(), .dtype = Dtype::f32, .rank = 1, .dims = {count, 1, 1, 1}};
  const device::TensorView out{.data = found.data(), .dtype = Dtype::bf16, .rank = 1, .dims = {count, 1, 1, 1}};
  const auto& all = kernels::host_kernels();
  const auto cast = std::find_if(all.begin(), all.end(), [](const auto& k) { return k.op_kind == "cast_weight"; });
  ASSERT_NE(cast, all.end());
  for (const int64_t target : instruction_sets()) {
    const InstructionSet set(target);
    cast->run({.op = &op, .in = {&in, 1}, .updates = {&out, 1}});
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(found[i].bits, bf16(values[i]).bits)
          << hwy::TargetName(target) << ", bits " << std::bit_cast<uint32_t>(values[i]);
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
