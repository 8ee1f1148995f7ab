// Muon's ops against their definition, written out anew, on the reference and on the host.
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference_muon() { return kernels::reference_kernels(); }

Tensor one(double value) { return Tensor(Dtype::f64, {1}, value); }

class MuonOps : public testing::TestWithParam<bool> {
 protected:
  const std::vector<kernels::KernelEntry>& own() const {
    return GetParam() ? kernels::host_kernels() : kernels::reference_kernels();
  }
};

TEST_P(MuonOps, MomentumLooksAhead) {
  const Tensor acc0 = random_tensor(Dtype::f32, {5, 7}, 1), acc1 = random_tensor(Dtype::f32, {5, 7}, 2),
               m = random_tensor(Dtype::f32, {5, 7}, 3);
  const double clip = 0.5, momentum = 0.95;
  for (const auto& [word, tolerance] : {std::pair{"f32", 1e-6}, std::pair{"bf16", 1e-2}}) {
    OpCase op{"",
              "muon_momentum",
              {metadata(one(clip)), metadata(acc0), metadata(acc1)},
              {{"momentum", momentum}, {"dtype", std::string(word)}},
              {m}};
    const OpResult result = run_op(op, own(), true, ir::Phase::end);
    Tensor m_new = m, u = result.out[0];
    for (size_t i = 0; i < m.values.size(); ++i) {
      const double g = clip * (acc0.values[i] + acc1.values[i]);
      m_new.values[i] = momentum * m.values[i] + g;
      u.values[i] = g + momentum * m_new.values[i];
    }
    EXPECT_TRUE(close(m_new, result.updates[0], 1e-6));
    EXPECT_TRUE(close(u, result.out[0], tolerance));
    op.in[0].tensor = one(0);
    const OpResult left_out = run_op(op, own(), true, ir::Phase::end);
    EXPECT_TRUE(same(m, left_out.updates[0]));
    EXPECT_EQ(left_out.out[0].values, std::vector<double>(m.values.size(), 0));
  }
}

// Each matrix by its own norm, turned where it is high, and back to where it came from.
TEST_P(MuonOps, MatricesAreScaledAndPlaced) {
  for (const auto& [rows, columns, blocks] :
       {std::array<int64_t, 3>{4, 6, 1}, {6, 4, 1}, {3, 6, 2}, {8, 4, 4}, {1, 5, 1}, {2, 2, 2}}) {
    const int64_t size = rows * columns, width = columns / blocks;
    const Tensor stack = random_tensor(Dtype::f32, {3, size}, 7);
    const ir::Attributes form{{"count", int64_t{3}}, {"rows", rows}, {"columns", columns}, {"blocks", blocks}};
    const Tensor x =
        run_op({"", "unit_matrices", {metadata(stack)}, form, {}}, own(), false, ir::Phase::end).out[0];
    EXPECT_EQ(x.shape, (std::vector<int64_t>{3 * std::min(rows, columns), std::max(rows, columns)}));
    Tensor expected = x;
    for (int64_t k = 0; k < 3; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += std::pow(stack.values[static_cast<size_t>(k * size + i)], 2);
      for (int64_t b = 0; b < blocks; ++b) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            const int64_t column = b * width + j;
            const int64_t to = rows > columns ? column * rows + i : i * columns + column;
            expected.values[static_cast<size_t>(k * size + to)] =
                stack.values[static_cast<size_t>(k * size + b * rows * width + i * width + j)] /
                (std::sqrt(sum) + 1e-7);
          }
        }
      }
    }
    EXPECT_TRUE(close(expected, x, 1e-6)) << rows << " x " << columns << " in " << blocks;
    const Tensor back =
        run_op({"", "place_matrices", {metadata(expected)}, form, {}}, own(), false, ir::Phase::end).out[0];
    for (int64_t k = 0; k < 3; ++k) {
      const auto at = static_cast<size_t>(k * size);
      EXPECT_NEAR(back.values[at] * stack.values[at + static_cast<size_t>(size) - 1],
                  back.values[at + static_cast<size_t>(size) - 1] * stack.values[at], 1e-6);
    }
  }
}

TEST_P(MuonOps, NothingHasNoDirection) {
  const ir::Attributes form{
      {"count", int64_t{1}}, {"rows", int64_t{2}}, {"columns", int64_t{3}}, {"blocks", int64_t{1}}};
  const OpCase op{"", "unit_matrices", {metadata(Tensor(Dtype::f32, {1, 6}))}, form, {}};
  EXPECT_EQ(run_op(op, own(), false, ir::Phase::end).out[0].values, std::vector<double>(6, 0));
}

TEST_P(MuonOps, StepScalesAndDecays) {
  const Tensor p = random_tensor(Dtype::f32, {4, 9}, 4), o = random_tensor(Dtype::bf16, {36}, 5);
  const double rate = 0.02, scale = 0.6, decay = 0.1;
  OpCase op{"",
            "muon_step",
            {metadata(one(1)), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{rate, 1, 1, 0})), metadata(o)},
            {{"scale", scale}, {"decay", decay}, {"copy", int64_t{1}}},
            {p, Tensor(Dtype::bf16, {4, 9}, -7.0)}};
  const OpResult result = run_op(op, own(), true, ir::Phase::end);
  Tensor expected = p;
  for (size_t i = 0; i < p.values.size(); ++i)
    expected.values[i] = p.values[i] - rate * (scale * o.values[i] + decay * p.values[i]);
  EXPECT_TRUE(close(expected, result.updates[0], 1e-6));
  op.in[0].tensor = one(0);
  const OpResult left_out = run_op(op, own(), true, ir::Phase::end);
  EXPECT_TRUE(same(p, left_out.updates[0]));
  EXPECT_EQ(left_out.updates[1].values, p.values) << "numbers that bf16 holds";
}

TEST_P(MuonOps, SumsAndOffsets) {
  const Tensor x = random_tensor(Dtype::f32, {6, 5}, 8), z = random_tensor(Dtype::f32, {6, 5}, 9);
  const OpCase op{"", "scaled_sum", {metadata(x), metadata(z)}, {{"alpha", -4.775}, {"beta", 2.0315}}, {}};
  Tensor expected = x;
  for (size_t i = 0; i < x.values.size(); ++i) expected.values[i] = -4.775 * x.values[i] + 2.0315 * z.values[i];
  EXPECT_TRUE(close(expected, run_op(op, own(), false, ir::Phase::end).out[0], 1e-6));
  const OpCase offsets{"", "even_offsets", {}, {{"groups", int64_t{3}}, {"rows", int64_t{4}}}, {}};
  EXPECT_EQ(run_op(offsets, reference_muon(), false, ir::Phase::end).out[0].values,
            (std::vector<double>{0, 4, 8, 12}));
}

struct Published {
  int64_t rows, columns;
  std::vector<double> start;
  std::vector<std::vector<double>> gradients;
  std::vector<double> end;
};
const std::vector<Published> kPublished{
#include "tests/fixtures/muon/steps.inc"
};

// The chain of a step, op by op, two copies of the matrix in one stack.
TEST_P(MuonOps, StepsAreThePublishedOnes) {
  const double rate = 0.02, momentum = 0.95, decay = 0.1;
  for (const Published& of : kPublished) {
    const int64_t a = std::min(of.rows, of.columns), b = std::max(of.rows, of.columns);
    const auto run = [&](const OpCase& op) { return run_op(op, own(), true, ir::Phase::end); };
    const auto twice = [](std::vector<double> once) {
      once.insert(once.end(), once.begin(), once.end());
      return once;
    };
    Tensor master(Dtype::f32, {2, of.rows, of.columns}, twice(of.start)), m(Dtype::f32, {2, of.rows, of.columns});
    const ir::Attributes form{
        {"count", int64_t{2}}, {"rows", of.rows}, {"columns", of.columns}, {"blocks", int64_t{1}}};
    const Tensor offsets(Dtype::i32, {3},
                         std::vector<double>{0, static_cast<double>(a), static_cast<double>(2 * a)});
    const auto each = [](Tensor t) {
      t.shape = {2, t.shape[0] / 2, t.shape[1]};
      return t;
    };
    const auto sum = [&](const Tensor& x, const Tensor& z, double alpha, double beta) {
      return run({"", "scaled_sum", {metadata(x), metadata(z)}, {{"alpha", alpha}, {"beta", beta}}, {}}).out[0];
    };
    const auto product = [&](const char* kind, const Tensor& x, const Tensor& w) {
      return run({"", kind, {metadata(x), metadata(each(w)), metadata(offsets)}, {}, {}}).out[0];
    };
    for (const std::vector<double>& gradient : of.gradients) {
      const OpResult ahead = run({"",
                                  "muon_momentum",
                                  {metadata(one(1)), metadata(Tensor(Dtype::f32, m.shape, twice(gradient)))},
                                  {{"momentum", momentum}, {"dtype", std::string("f32")}},
                                  {m}});
      m = ahead.updates[0];
      Tensor x = run({"", "unit_matrices", {metadata(ahead.out[0])}, form, {}}).out[0];
      EXPECT_EQ(x.shape, (std::vector<int64_t>{2 * a, b}));
      for (int i = 0; i < 5; ++i) {
        const Tensor square = product("grouped_linear", x, x);
        const Tensor factor = sum(square, product("grouped_linear", square, square), -4.7750, 2.0315);
        x = sum(x, product("grouped_linear_dgrad", factor, x), 3.4445, 1);
      }
      const Tensor o = run({"", "place_matrices", {metadata(x)}, form, {}}).out[0];
      const double scale = 0.2 * std::sqrt(static_cast<double>(b));
      master = run({"",
                    "muon_step",
                    {metadata(one(1)), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{rate, 1, 1, 0})),
                     metadata(o)},
                    {{"scale", scale}, {"decay", decay}, {"copy", int64_t{0}}},
                    {master}})
                   .updates[0];
    }
    EXPECT_TRUE(close(Tensor(Dtype::f32, master.shape, twice(of.end)), master, 1e-5))
        << of.rows << " x " << of.columns;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MuonOps, testing::Values(false, true),
                         [](const auto& info) { return std::string(info.param ? "host" : "reference"); });

}  // namespace
}  // namespace heddle::op_runner
