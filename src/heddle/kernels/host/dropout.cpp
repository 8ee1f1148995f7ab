// Dropout, alone and fused with the bias before it and the residual addition behind it. H columns, T rows. The
// words are those of kernels/dropout_words.h: a vector of lanes draws for four times as many columns.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/dropout.cpp"
#include "heddle/kernels/dropout_words.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

/// Philox on lanes of 64 bits, of which each holds a word of 32.
using Longs = hn::ScalableTag<uint64_t>;
using L = hn::Vec<Longs>;
constexpr int64_t kCounters = static_cast<int64_t>(hn::MaxLanes(Longs()));
/// Columns that one round of counters draws for.
constexpr int64_t kDrawn = 4 * kCounters;

HWY_INLINE L longs(uint64_t word) { return hn::Set(Longs(), word); }
HWY_INLINE L product(L a, uint32_t b) {
#if HWY_TARGET == HWY_SCALAR
  return L(a.raw * b);
#else
  const hn::RepartitionToNarrow<Longs> words;
  return hn::MulEven(hn::BitCast(words, a), hn::BitCast(words, longs(b)));
#endif
}

/// The words of columns 4·block … 4·block + kDrawn − 1 of a token.
HWY_INLINE void draw(const DropoutDraw& of, int64_t block, int32_t token, uint32_t* words) {
  L c0 = hn::Add(longs(static_cast<uint64_t>(block)), hn::Iota(Longs(), 0)),
    c1 = longs(static_cast<uint32_t>(token));
  L c2 = longs(of.site), c3 = longs(of.step);
  const L low = longs(0xffffffff);
  uint32_t k0 = of.seed[0], k1 = of.seed[1];
  for (int round = 0; round < Philox::kRounds; ++round) {
    const L a = product(c0, Philox::kMultiplier[0]), b = product(c2, Philox::kMultiplier[1]);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), longs(k0));
    c1 = hn::And(b, low);
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), longs(k1));
    c3 = hn::And(a, low);
    k0 += Philox::kWeyl[0];
    k1 += Philox::kWeyl[1];
  }
  const L first = hn::Or(c0, hn::ShiftLeft<32>(c1)), second = hn::Or(c2, hn::ShiftLeft<32>(c3));
  hn::StoreInterleaved2(first, second, Longs(), reinterpret_cast<uint64_t*>(words));
}

/// Calls body(h, Whole or Part, factors) along a row: 0 where an element is dropped.
template <class Body>
HWY_INLINE void sweep_drawn(const DropoutDraw& of, int32_t token, int64_t H, const Body& body) {
  HWY_ALIGN uint32_t words[kDrawn];
  const V factor = set(static_cast<float>(of.factor));
  const auto least = hn::Set(Words(), of.least_kept);
  for (int64_t first = 0; first < H; first += kDrawn) {
    draw(of, first / 4, token, words);
    sweep(std::min(kDrawn, H - first), [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      const auto kept = hn::Not(hn::Lt(hn::LoadU(Words(), words + i), least));
      body(first + i, lanes, hn::RebindMask(Floats(), kept), factor);
    });
  }
}

template <class X>
void dropout(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const DropoutDraw of(*call.op, call.in[2].as<const int32_t>());
  for (int64_t t = begin; t < end; ++t) {
    const X* x_H = call.in[0].as<const X>() + t * H;
    X* y_H = call.out[0].as<X>() + t * H;
    sweep_drawn(of, call.in[1].as<const int32_t>()[t], H,
                [&](int64_t h, auto lanes, auto kept, V factor) HEDDLE_BODY {
                  store(hn::IfThenElseZero(kept, hn::Mul(factor, load(x_H + h, lanes))), y_H + h, lanes);
                });
  }
}

template <class X>
void dropout_add(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const DropoutDraw of(*call.op, call.in[3].as<const int32_t>());
  const float* bias_H = call.in.size() > 4 ? call.in[4].as<const float>() : nullptr;
  for (int64_t t = begin; t < end; ++t) {
    const X *x_H = call.in[0].as<const X>() + t * H, *residual_H = call.in[1].as<const X>() + t * H;
    X* y_H = call.out[0].as<X>() + t * H;
    sweep_drawn(
        of, call.in[2].as<const int32_t>()[t], H, [&](int64_t h, auto lanes, auto kept, V factor) HEDDLE_BODY {
          V x = load(x_H + h, lanes);
          if (bias_H) x = hn::Add(x, load(bias_H + h, lanes));
          store(hn::Add(load(residual_H + h, lanes), hn::IfThenElseZero(kept, hn::Mul(factor, x))), y_H + h, lanes);
        });
  }
}

}  // namespace

void DropoutRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? dropout<bf16>(call, begin, end) : dropout<float>(call, begin, end);
}
void DropoutAddRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? dropout_add<bf16>(call, begin, end) : dropout_add<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(DropoutRows);
HWY_EXPORT(DropoutAddRows);

int64_t row_bytes(const KernelCall& call) { return call.in[0].columns() * size_of(call.in[0].dtype); }

void dropout(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 2 * row_bytes(call), HWY_DYNAMIC_DISPATCH(DropoutRows));
}
void dropout_add(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 3 * row_bytes(call), HWY_DYNAMIC_DISPATCH(DropoutAddRows));
}

}  // namespace

std::vector<KernelEntry> dropout_kernels() {
  return {{"dropout", "host", "highway", takes<"xii">, nullptr, dropout},
          {"dropout_add", "host", "highway", takes<"xxiia">, nullptr, dropout_add}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
