// Ops whose operands have more than 2³¹ numbers, and more rows than the height of a grid: the first and the last
// rows have to be what the same op makes of those rows alone, to the bit. In the emulator only, which runs a few of
// the blocks over memory that is mapped but for the most part not there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "heddle/base/random.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"
#include "tests/gpu/emulator.h"

namespace heddle {
namespace {

constexpr int64_t kBeyond = (int64_t{1} << 31) + (int64_t{1} << 20),
                  kEnds = 1;  // rows at either end: there are blocks of one row

/// Zeros that take memory only where they are touched.
class Sparse {
 public:
  explicit Sparse(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw SystemError(errno, "no addresses for a large tensor");
    at_ = static_cast<std::byte*>(at);
  }
  ~Sparse() { munmap(at_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  std::byte* at() const { return at_; }

 private:
  size_t bytes_;
  std::byte* at_;
};

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

class Tensors {
 public:
  Tensors(const std::vector<Operand>& operands, int64_t T) {
    for (const Operand& o : operands) {
      const int64_t elements = o.columns * (o.whole ? 1 : T);
      memory_.push_back(std::make_unique<Sparse>(elements * size_of(o.dtype)));
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
  std::byte* row(size_t i, const Operand& o, int64_t row) const {
    return views[i].as<std::byte>() + row * o.columns * size_of(o.dtype);
  }
  std::vector<device::TensorView> views;

 private:
  std::vector<std::unique_ptr<Sparse>> memory_;
};

void fill(std::byte* at, Dtype dtype, int64_t count, const RandomKey& key) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
    const auto word = std::bit_cast<uint32_t>(value);
    if (dtype == Dtype::f32) {
      std::memcpy(at + i * 4, &word, 4);
    } else {
      const auto half = static_cast<uint16_t>(word >> 16);
      std::memcpy(at + i * 2, &half, 2);
    }
  }
}

class Large : public testing::TestWithParam<Case> {};

TEST_P(Large, RowsBeyondTwoToThe31) {
  const Case& c = GetParam();
  int64_t widest = 1;
  for (const auto* list : {&c.in, &c.out}) {
    for (const Operand& o : *list) widest = o.whole ? widest : std::max(widest, o.columns);
  }
  const int64_t T = kBeyond / widest, few = 2 * kEnds;
  const Tensors in(c.in, T), out(c.out, T), few_in(c.in, few), few_out(c.out, few);
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Operand& o = c.in[i];
    const RandomKey key = RandomKey(29).with(i);
    if (o.whole) {
      fill(in.views[i].as<std::byte>(), o.dtype, o.columns, key);
      std::memcpy(few_in.views[i].data, in.views[i].data, static_cast<size_t>(o.columns * size_of(o.dtype)));
      continue;
    }
    for (int64_t r = 0; r < few; ++r) {
      const int64_t row = r < kEnds ? r : T - few + r;
      fill(in.row(i, o, row), o.dtype, o.columns, key.with(static_cast<uint64_t>(r)));
      std::memcpy(few_in.row(i, o, r), in.row(i, o, row), static_cast<size_t>(o.columns * size_of(o.dtype)));
    }
  }
  ir::Op op;
  op.def = &ops::find(c.kind);
  op.attributes = c.attributes;
  const auto run = [&](const Tensors& from, const Tensors& to) {
    const auto& all = kernels::cuda_kernels();
    const auto entry = std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.op_kind == c.kind; });
    std::vector<std::byte> scratch(1 << 20);
    device::KernelCall call;
    call.op = &op;
    call.in = from.views;
    call.out = to.views;
    call.scratch = scratch.data();
    entry->run(call);
  };
  run(few_in, few_out);
  {
    const kernels::cuda::emulator::SomeBlocks some(10, 5);
    run(in, out);
  }
  for (size_t i = 0; i < c.out.size(); ++i) {
    const Operand& o = c.out[i];
    for (int64_t r = 0; r < few; ++r) {
      const int64_t row = r < kEnds ? r : T - few + r;
      EXPECT_EQ(
          std::memcmp(out.row(i, o, row), few_out.row(i, o, r), static_cast<size_t>(o.columns * size_of(o.dtype))),
          0)
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
