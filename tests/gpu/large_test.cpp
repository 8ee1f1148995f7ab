// Ops whose operands have more than 2³¹ numbers, and more rows than the height of a grid: the first and the last
// rows have to be what the same op makes of those rows alone, to the bit. The emulator runs a few of the blocks
// over memory that is mapped but for the most part not there; a device runs all of them.
#include <gtest/gtest.h>

#include <cstring>

#include "heddle/base/random.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"
#include "tests/gpu/on_device.h"

namespace heddle {
namespace {

constexpr int64_t kBeyond = (int64_t{1} << 31) + (int64_t{1} << 20),
                  kEnds = 1;  // rows at either end: there are blocks of one row

/// An operand of `rows_each` · T numbers in rows, or, where `whole`, of as many in all.
struct Operand {
  int64_t columns;
  bool whole = false;
  Dtype dtype = Dtype::bf16;
  std::vector<int64_t> dims = {};  // of a whole one
};
struct Case {
  std::string kind;
  ir::Attributes attributes;
  std::vector<Operand> in, out;
};
void PrintTo(const Case& c, std::ostream* to) { *to << c.kind; }

int64_t bytes_of(const Operand& o, int64_t T) { return o.columns * (o.whole ? 1 : T) * size_of(o.dtype); }

class Tensors {
 public:
  Tensors(const std::vector<Operand>& operands, int64_t T) {
    for (const Operand& o : operands) {
      memory_.push_back(op_runner::room(bytes_of(o, T)));
      device::TensorView view;
      view.data = memory_.back()->at();
      view.dtype = o.dtype;
      if (o.whole) {
        view.rank = static_cast<int8_t>(o.dims.size());
        std::copy(o.dims.begin(), o.dims.end(), view.dims.begin());
      } else if (o.columns == 1) {
        view.rank = 1;
        view.dims[0] = T;
      } else {
        view.rank = 2;
        view.dims = {T, o.columns, 1, 1};
      }
      views.push_back(view);
    }
  }
  /// Row `row` of operand i, or all of a whole one.
  void put(size_t i, const Operand& o, int64_t row, const std::vector<std::byte>& values) {
    const auto bytes = static_cast<int64_t>(values.size());
    memory_[i]->put(o.whole ? 0 : row * bytes, values.data(), bytes);
  }
  std::vector<std::byte> get(size_t i, const Operand& o, int64_t row) const {
    std::vector<std::byte> values(static_cast<size_t>(o.columns * size_of(o.dtype)));
    const auto bytes = static_cast<int64_t>(values.size());
    memory_[i]->get(values.data(), row * bytes, bytes);
    return values;
  }
  std::vector<device::TensorView> views;

 private:
  std::vector<std::unique_ptr<op_runner::Room>> memory_;
};

std::vector<std::byte> drawn_large(const Operand& o, const RandomKey& key) {
  std::vector<std::byte> values(static_cast<size_t>(o.columns * size_of(o.dtype)));
  for (int64_t i = 0; i < o.columns; ++i) {
    const auto word = std::bit_cast<uint32_t>(static_cast<float>(key.normal(static_cast<uint64_t>(i))));
    if (o.dtype == Dtype::f32) {
      std::memcpy(values.data() + i * 4, &word, 4);
    } else {
      const auto half = static_cast<uint16_t>(word >> 16);
      std::memcpy(values.data() + i * 2, &half, 2);
    }
  }
  return values;
}

class Large : public testing::TestWithParam<Case> {};

TEST_P(Large, RowsBeyondTwoToThe31) {
  if (const Support there = op_runner::device_there(); !there) GTEST_SKIP() << there.reason;
  const Case& c = GetParam();
  if (c.kind == "linear" && kernels::cuda_product_library().there) {
    GTEST_SKIP() << "the library chooses another order of sums for other numbers of rows: HEDDLE_CUBLASLT=0 goes "
                    "without";
  }
  int64_t widest = 1;
  for (const auto* list : {&c.in, &c.out}) {
    for (const Operand& o : *list) widest = o.whole ? widest : std::max(widest, o.columns);
  }
  const int64_t T = kBeyond / widest, few = 2 * kEnds;
  constexpr int64_t kScratch = 1 << 20;
  int64_t bytes = kScratch;
  for (const auto* list : {&c.in, &c.out}) {
    for (const Operand& o : *list) bytes += bytes_of(o, T) + bytes_of(o, few);
  }
  if (const Support there = op_runner::room_for(bytes); !there) GTEST_SKIP() << there.reason;
  Tensors in(c.in, T), out(c.out, T), few_in(c.in, few), few_out(c.out, few);
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Operand& o = c.in[i];
    const RandomKey key = RandomKey(29).with(i);
    for (int64_t r = 0; r < (o.whole ? 1 : few); ++r) {
      const std::vector<std::byte> values = drawn_large(o, key.with(static_cast<uint64_t>(r)));
      in.put(i, o, r < kEnds ? r : T - few + r, values);
      few_in.put(i, o, r, values);
    }
  }
  ir::Op op;
  op.def = &ops::find(c.kind);
  op.attributes = c.attributes;
  const std::unique_ptr<op_runner::Room> scratch = op_runner::room(kScratch);
  const auto run = [&](const Tensors& from, const Tensors& to) {
    const auto& all = kernels::cuda_kernels();
    // Pieces are for operands of two types.
    const auto entry = std::find_if(all.begin(), all.end(),
                                    [&](const auto& e) { return e.op_kind == c.kind && e.name != "pieces"; });
    device::KernelCall call;
    call.op = &op;
    call.in = from.views;
    call.out = to.views;
    call.scratch = scratch->at();
    op_runner::run_in_rooms(*entry, call);
  };
  run(few_in, few_out);
  run(in, out);
  for (size_t i = 0; i < c.out.size(); ++i) {
    for (int64_t r = 0; r < few; ++r) {
      const int64_t row = r < kEnds ? r : T - few + r;
      EXPECT_EQ(out.get(i, c.out[i], row), few_out.get(i, c.out[i], r))
          << "output " << i << ", row " << row << " of " << T;
    }
  }
}

std::vector<Case> cases() {
  constexpr int64_t W = 1024;
  const ir::Attributes eps{{"epsilon", 1e-6}};
  return {{"silu", {}, {{W}}, {{W}}},
          {"add", {}, {{W}, {W}}, {{W}}},
          {"swiglu", {}, {{2 * W}}, {{W}}},
          {"swiglu_dgrad", {}, {{W}, {2 * W}}, {{2 * W}}},
          {"rms_norm", eps, {{W}, {W, true, Dtype::f32, {W}}}, {{W}, {1, false, Dtype::f32}}},
          {"layer_norm",
           eps,
           {{W}, {W, true, Dtype::f32, {W}}, {W, true, Dtype::f32, {W}}},
           {{W}, {1, false, Dtype::f32}, {1, false, Dtype::f32}}},
          {"linear", {}, {{W / 2}, {32 * W, true, Dtype::bf16, {64, W / 2}}}, {{64}}}};
}
INSTANTIATE_TEST_SUITE_P(Ops, Large, testing::ValuesIn(cases()), [](const auto& info) { return info.param.kind; });

}  // namespace
}  // namespace heddle
