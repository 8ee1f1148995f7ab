// The end of a step: gradient norm, clipping, AdamW (Loshchilov and Hutter, arXiv 1711.05101), all state in one
// pass, and weights made from their masters. A parameter used in several places has one accumulator a use; they are
// summed in order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/optimizer.cpp"
#include <cmath>
#include <cstring>

#include "heddle/base/numbers/split_float.h"
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/one_by_one.h"
#include "heddle/ops/moment_byte.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;
using device::TensorView;

template <class Lanes>
HWY_INLINE V sum_of_uses(std::span<const TensorView> uses, int64_t i, Lanes lanes) {
  V sum = load(uses[0].as<const float>() + i, lanes);
  for (size_t u = 1; u < uses.size(); ++u) sum = hn::Add(sum, load(uses[u].as<const float>() + i, lanes));
  return sum;
}

/// The rule of a step with its factors, on vectors.
class Adamw {
 public:
  explicit HWY_INLINE Adamw(const KernelCall& call)
      : uses_(call.in.subspan(2)),
        clip_(set(static_cast<float>(call.in[0].as<const double>()[0]))),
        beta1_(of(call, "beta1")),
        beta2_(of(call, "beta2")),
        rest1_(set(static_cast<float>(1 - call.op->attributes.number("beta1")))),
        rest2_(set(static_cast<float>(1 - call.op->attributes.number("beta2")))),
        epsilon_(of(call, "epsilon")),
        decay_(of(call, "decay")),
        rate_(set(static_cast<float>(call.in[1].as<const double>()[0]))),
        grown1_(set(static_cast<float>(1 / call.in[1].as<const double>()[1]))),
        grown2_(set(static_cast<float>(1 / call.in[1].as<const double>()[2]))) {}

  /// The elements from i on: moments and master, as they are and as they will be.
  template <class Lanes>
  HWY_INLINE void step(int64_t i, Lanes lanes, V& p, V& m, V& v) const {
    const V g = hn::Mul(clip_, sum_of_uses(uses_, i, lanes));
    m = hn::MulAdd(rest1_, g, hn::Mul(beta1_, m));
    v = hn::MulAdd(hn::Mul(rest2_, g), g, hn::Mul(beta2_, v));
    const V by = hn::Div(hn::Mul(m, grown1_), hn::Add(hn::Sqrt(hn::Mul(v, grown2_)), epsilon_));
    p = hn::NegMulAdd(rate_, hn::MulAdd(decay_, p, by), p);
  }

 private:
  static HWY_INLINE V of(const KernelCall& call, const char* name) {
    return set(static_cast<float>(call.op->attributes.number(name)));
  }
  std::span<const TensorView> uses_;
  V clip_, beta1_, beta2_, rest1_, rest2_, epsilon_, decay_, rate_, grown1_, grown2_;
};

/// The moments from element i on: both kept as M, or the first in a byte beside the second (ops/moment_byte.h).
/// The second may have a sign, which is not its own.
template <class M>
struct Moments {
  M *m, *v;
  template <class Lanes>
  HWY_INLINE void load_both(int64_t i, Lanes lanes, V& first, V& second) const {
    first = load(m + i, lanes);
    second = load(v + i, lanes);
  }
  template <class Lanes>
  HWY_INLINE void keep(int64_t i, Lanes lanes, V first, V second) const {
    store(first, m + i, lanes);
    store(second, v + i, lanes);
  }
};

using Eighths = hn::Rebind<uint8_t, Floats>;
HWY_INLINE hn::Vec<Words> load_bytes(const uint8_t* from, Whole) {
  return hn::PromoteTo(Words(), hn::LoadU(Eighths(), from));
}
HWY_INLINE hn::Vec<Words> load_bytes(const uint8_t* from, Part part) {
  HWY_ALIGN uint8_t lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(part.count));
  return load_bytes(lanes, Whole{});
}
HWY_INLINE void store_bytes(hn::Vec<Words> words, uint8_t* to, Whole) {
  hn::StoreU(hn::TruncateTo(Eighths(), words), Eighths(), to);
}
HWY_INLINE void store_bytes(hn::Vec<Words> words, uint8_t* to, Part part) {
  HWY_ALIGN uint8_t lanes[kLanes];
  store_bytes(words, lanes, Whole{});
  std::memcpy(to, lanes, static_cast<size_t>(part.count));
}

/// fp8::number_of, rounded and byte_of on vectors.
constexpr uint32_t kLeastNormal = 121, kBiases = 120 << 3;
HWY_INLINE V number_of(hn::Vec<Words> byte) {
  const Words words;
  const hn::RebindToSigned<Floats> whole;
  const auto size = hn::And(byte, hn::Set(words, 0x7fu)), sign = hn::ShiftLeft<24>(hn::Xor(byte, size));
  const V small = hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(whole, size)), set(0x1p-9f));
  const V normal = hn::BitCast(Floats(), hn::ShiftLeft<20>(hn::Add(size, hn::Set(words, kBiases))));
  const V number = hn::IfThenElse(hn::RebindMask(Floats(), hn::Lt(size, hn::Set(words, 8u))), small, normal);
  const V none = hn::BitCast(Floats(), hn::Set(words, 0x7fc00000u));
  const auto is_none = hn::RebindMask(Floats(), hn::Eq(size, hn::Set(words, uint32_t{fp8::kNan})));
  return hn::IfThenElse(is_none, none, hn::BitCast(Floats(), hn::Or(hn::BitCast(words, number), sign)));
}
HWY_INLINE hn::Vec<Words> byte_of_rounded(V x) {
  const Words words;
  const hn::RebindToSigned<Floats> whole;
  const auto least = hn::Set(words, kLeastNormal);
  const auto magnitude = hn::BitCast(words, hn::Abs(x));
  const V held = hn::BitCast(Floats(), hn::Min(magnitude, hn::BitCast(words, set(fp8::kLargest))));
  const auto exponent = hn::Max(hn::ShiftRight<23>(hn::BitCast(words, held)), least);
  const V grid = hn::BitCast(
      Floats(), hn::Or(hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(words, 20u))), hn::Set(words, 0x400000u)));
  const V near = hn::Sub(hn::Add(held, grid), grid);
  const auto size = hn::BitCast(words, near);
  const auto small = hn::BitCast(words, hn::ConvertTo(whole, hn::Mul(near, set(512.0f))));
  const auto normal = hn::Sub(hn::ShiftRight<20>(size), hn::Set(words, kBiases));
  const auto byte = hn::IfThenElse(hn::Lt(size, hn::ShiftLeft<23>(least)), small, normal);
  const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(words, x)));
  return hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(x)), hn::Set(words, uint32_t{fp8::kNan}),
                        hn::Or(byte, sign));
}

struct MomentBytes {
  uint8_t* m;
  bf16* v;
  template <class Lanes>
  HWY_INLINE void load_both(int64_t i, Lanes lanes, V& first, V& second) const {
    second = load(v + i, lanes);
    first = hn::Mul(number_of(load_bytes(m + i, lanes)),
                    hn::Mul(hn::Sqrt(hn::Abs(second)), set(1 / fp8::kMomentUnits)));
  }
  template <class Lanes>
  HWY_INLINE void keep(int64_t i, Lanes lanes, V first, V second) const {
    const V root = hn::Sqrt(hn::Abs(store(second, v + i, lanes)));
    const V units = hn::Mul(hn::Div(first, root), set(fp8::kMomentUnits));
    store_bytes(byte_of_rounded(hn::IfThenZeroElse(hn::Eq(root, zero()), units)), m + i, lanes);
  }
};

/// Calls body(moments) for the types that those of an op have.
template <class Body>
HWY_INLINE void with_moments(const KernelCall& call, const Body& body) {
  const TensorView &m = call.updates[1], &v = call.updates[2];
  if (m.dtype == Dtype::u8) return body(MomentBytes{m.as<uint8_t>(), v.as<bf16>()});
  if (m.dtype == Dtype::bf16) return body(Moments<bf16>{m.as<bf16>(), v.as<bf16>()});
  body(Moments<float>{m.as<float>(), v.as<float>()});
}

template <class X, class Kept>
HWY_INLINE void adamw(const KernelCall& call, X* copy, const Kept& moments, int64_t begin, int64_t end) {
  const Adamw rule(call);
  auto* p = call.updates[0].as<float>();
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    const int64_t i = begin + from;
    V p_i = load(p + i, lanes), m_i, v_i;
    moments.load_both(i, lanes, m_i, v_i);
    rule.step(i, lanes, p_i, m_i, v_i);
    moments.keep(i, lanes, m_i, v_i);
    store(p_i, p + i, lanes);
    if (copy) store(p_i, copy + i, lanes);
  });
}

using Halves = hn::Rebind<uint16_t, Floats>;
HWY_INLINE hn::Vec<Words> load_halves(const uint16_t* from, Whole) {
  return hn::PromoteTo(Words(), hn::LoadU(Halves(), from));
}
HWY_INLINE hn::Vec<Words> load_halves(const uint16_t* from, Part part) {
  HWY_ALIGN uint16_t lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(part.count) * sizeof(uint16_t));
  return load_halves(lanes, Whole{});
}
/// The lower halves.
HWY_INLINE void store_halves(hn::Vec<Words> words, uint16_t* to, Whole) {
  hn::StoreU(hn::TruncateTo(Halves(), words), Halves(), to);
}
HWY_INLINE void store_halves(hn::Vec<Words> words, uint16_t* to, Part part) {
  HWY_ALIGN uint16_t lanes[kLanes];
  store_halves(words, lanes, Whole{});
  std::memcpy(to, lanes, static_cast<size_t>(part.count) * sizeof(uint16_t));
}

/// base/numbers/split_float.h on vectors.
template <class Kept>
HWY_INLINE void adamw_split(const KernelCall& call, const Kept& moments, int64_t begin, int64_t end) {
  const Adamw rule(call);
  const Words words;
  const auto one = hn::Set(words, 1u), half = hn::Set(words, uint32_t{kHalfway}), lower = hn::Set(words, 0xffffu);
  const auto sign = hn::Set(words, 0x80000000u);
  auto *low = call.updates[0].as<uint16_t>(), *w = call.updates[3].as<uint16_t>();
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    const int64_t i = begin + from;
    V m_i, found_v;
    moments.load_both(i, lanes, m_i, found_v);
    const auto low_i = load_halves(low + i, lanes), signed_v = hn::BitCast(words, found_v);
    const auto up_at_half = hn::ShiftRight<31>(signed_v);
    const auto up = hn::IfThenElse(hn::Eq(low_i, half), up_at_half, hn::IfThenElseZero(hn::Gt(low_i, half), one));
    const auto high = hn::Sub(load_halves(w + i, lanes), up);
    V p_i = hn::BitCast(Floats(), hn::Or(hn::ShiftLeft<16>(high), low_i));
    V v_i = hn::BitCast(Floats(), hn::AndNot(sign, signed_v));
    rule.step(i, lanes, p_i, m_i, v_i);
    const auto word = hn::BitCast(words, p_i), left = hn::And(word, lower), nearest = bf16_bits(p_i);
    const auto raised = hn::And(hn::Eq(left, half), hn::Ne(nearest, hn::ShiftRight<16>(word)));
    moments.keep(i, lanes, m_i,
                 hn::BitCast(Floats(), hn::Or(hn::BitCast(words, v_i), hn::IfThenElseZero(raised, sign))));
    store_halves(left, low + i, lanes);
    store_halves(nearest, w + i, lanes);
  });
}

/// Σ g² over the elements begin .. end, squares and sum in f64.
HWY_INLINE double square_sum(const KernelCall& call, int64_t begin, int64_t end) {
#if HWY_TARGET == HWY_SCALAR
  double total = 0;
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    const double g = hn::GetLane(sum_of_uses(call.in, begin + from, lanes));
    total += g * g;
  });
  return total;
#else
  HWY_ALIGN float g[kLanes];
  const hn::ScalableTag<double> wide;
  const hn::Half<Floats> half;
  using D = hn::Vec<hn::ScalableTag<double>>;
  D sums[2] = {hn::Zero(wide), hn::Zero(wide)};
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    // Reading alone is bound by the lines in flight: more of them are asked for, into the larger cache.
    for (const TensorView& use : call.in) __builtin_prefetch(use.as<const float>() + begin + from + 1024, 0, 2);
    store(sum_of_uses(call.in, begin + from, lanes), g, Whole{});
    for (int part = 0; part < 2; ++part) {
      const D x = hn::PromoteTo(wide, hn::Load(half, g + part * (kLanes / 2)));
      sums[part] = hn::MulAdd(x, x, sums[part]);
    }
  });
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(sums[0], sums[1])));
#endif
}

}  // namespace

void AdamwPiece(const KernelCall& call, int64_t begin, int64_t end) {
  const TensorView copy = call.updates.size() > 3 ? call.updates[3] : TensorView{};
  with_moments(call, [&](const auto& moments) HEDDLE_BODY {
    if (copy && copy.dtype == Dtype::bf16) {
      adamw(call, copy.as<bf16>(), moments, begin, end);
    } else {
      adamw(call, copy.as<float>(), moments, begin, end);
    }
  });
}

void AdamwSplitPiece(const KernelCall& call, int64_t begin, int64_t end) {
  with_moments(call, [&](const auto& moments) HEDDLE_BODY { adamw_split(call, moments, begin, end); });
}

double SquareSum(const KernelCall& call, int64_t begin, int64_t end) { return square_sum(call, begin, end); }

void AveragePiece(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* master = call.in[1].as<const float>() + begin;
  auto* average = call.updates[0].as<float>() + begin;
  const V share = set(static_cast<float>(1 - call.op->attributes.number("decay")));
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V a = load(average + i, lanes);
    store(hn::MulAdd(share, hn::Sub(load(master + i, lanes), a), a), average + i, lanes);
  });
}

void CastPiece(const TensorView& master, const TensorView& rounded, int64_t begin, int64_t end) {
  const auto* from = master.as<const float>() + begin;
  const auto cast = [&](auto* to) HEDDLE_BODY {
    sweep(end - begin,
          [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(from + i, lanes), to + begin + i, lanes); });
  };
  if (rounded.dtype == Dtype::bf16) {
    cast(rounded.as<bf16>());
  } else {
    cast(rounded.as<float>());
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(AdamwPiece);
HWY_EXPORT(AdamwSplitPiece);
HWY_EXPORT(SquareSum);
HWY_EXPORT(AveragePiece);
HWY_EXPORT(CastPiece);

/// Elements of one partial sum of squares.
constexpr int64_t kSquaresPerPartial = 16 << 10;

void grad_square_sum(const KernelCall& call) {
  const int64_t count = call.in[0].elements();
  const int64_t blocks = (count + kSquaresPerPartial - 1) / kSquaresPerPartial;
  auto* partials = reinterpret_cast<double*>(call.scratch);
  over_rows(blocks, kSquaresPerPartial * 4 * std::ssize(call.in), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kSquaresPerPartial;
      partials[b] = HWY_DYNAMIC_DISPATCH(SquareSum)(call, first, std::min(count, first + kSquaresPerPartial));
    }
  });
  double part = 0;
  for (int64_t b = 0; b < blocks; ++b) part += partials[b];
  call.out[0].as<double>()[0] = part;
}

int64_t square_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return (listing.elements(op.in[0], rows) / kSquaresPerPartial + 1) * 8;
}

/// norm = √Σ part; clip = min(1, max_norm/(norm + 1e-6)), 1 when max_norm is 0, and 0 when the norm is not finite.
void grad_norm(const KernelCall& call) {
  double sum = 0;
  for (const device::TensorView& part : call.in) {
    const auto* p = part.as<const double>();
    sum += part.elements() == kSquareLimbs ? ExactSquares::value(p) : p[0];
  }
  const double norm = std::sqrt(sum), max_norm = call.op->attributes.number("max_norm");
  double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  if (!std::isfinite(norm)) clip = 0;
  call.out[0].as<double>()[0] = norm;
  call.out[1].as<double>()[0] = clip;
}

void cast(const device::TensorView& master, const device::TensorView& rounded) {
  over_rows(
      master.elements(), 4 + size_of(rounded.dtype),
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(CastPiece)
        (master, rounded, begin, end);
      },
      kElementsPerPiece);
}

// A gradient that is not finite: the step is left out.
bool left_out(const KernelCall& call) { return call.in[0].as<const double>()[0] == 0; }

// The copy is made of the master in any case.
void adamw(const KernelCall& call) {
  if (left_out(call)) {
    if (call.updates.size() > 3) cast(call.updates[0], call.updates[3]);
    return;
  }
  over_rows(call, call.updates[0].elements(), 4 * std::ssize(call.in) + 28, HWY_DYNAMIC_DISPATCH(AdamwPiece),
            kElementsPerPiece);
}

void adamw_split(const KernelCall& call) {
  if (left_out(call)) return;
  over_rows(call, call.updates[0].elements(), 4 * std::ssize(call.in) + 24, HWY_DYNAMIC_DISPATCH(AdamwSplitPiece),
            kElementsPerPiece);
}

void average_master(const KernelCall& call) {
  if (left_out(call)) return;
  over_rows(call, call.updates[0].elements(), 12, HWY_DYNAMIC_DISPATCH(AveragePiece), kElementsPerPiece);
}

void cast_weight(const KernelCall& call) { cast(call.in[0], call.updates[0]); }

// State beside itself.
void copy(const KernelCall& call) {
  const auto* from = call.in[0].as<const std::byte>();
  auto* to = call.updates[0].as<std::byte>();
  const int64_t size = size_of(call.in[0].dtype);
  over_rows(
      call.in[0].elements(), 2 * size,
      [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin * size, from + begin * size, static_cast<size_t>((end - begin) * size));
      },
      kElementsPerPiece);
}

}  // namespace

std::vector<KernelEntry> optimizer_kernels() {
  return {
      {"grad_square_sum", "host", "highway", takes<"a*">, square_scratch, grad_square_sum},
      {"grad_norm", "host", "plain", takes<"d*">, nullptr, grad_norm},
      {"adamw", "host", "highway", takes<"dda*", "aaax">, nullptr, adamw},
      {"adamw", "host", "rounded moments", takes<"dda*", "abbx">, nullptr, adamw},
      {"adamw", "host", "moments in bytes", takes<"dda*", "aubx">, nullptr, adamw},
      {"adamw_split", "host", "highway", takes<"dda*", "haax">, nullptr, adamw_split},
      {"adamw_split", "host", "rounded moments", takes<"dda*", "hbbx">, nullptr, adamw_split},
      {"adamw_split", "host", "moments in bytes", takes<"dda*", "hubx">, nullptr, adamw_split},
      {"average_master", "host", "highway", takes<"da", "a">, nullptr, average_master},
      {"grad_square_sums", "host", "one by one", takes_each<takes<"a*">>, most_scratch<square_scratch>,
       one_by_one<grad_square_sum>},
      {"adamw_many", "host", "one by one", takes_each<takes<"dda*", "aaax">>, nullptr, one_by_one<adamw>},
      {"adamw_many", "host", "rounded moments", takes_each<takes<"dda*", "abbx">>, nullptr, one_by_one<adamw>},
      {"adamw_many", "host", "moments in bytes", takes_each<takes<"dda*", "aubx">>, nullptr, one_by_one<adamw>},
      {"adamw_split_many", "host", "one by one", takes_each<takes<"dda*", "haax">>, nullptr,
       one_by_one<adamw_split>},
      {"adamw_split_many", "host", "rounded moments", takes_each<takes<"dda*", "hbbx">>, nullptr,
       one_by_one<adamw_split>},
      {"adamw_split_many", "host", "moments in bytes", takes_each<takes<"dda*", "hubx">>, nullptr,
       one_by_one<adamw_split>},
      {"average_masters", "host", "one by one", takes_each<takes<"da", "a">>, nullptr, one_by_one<average_master>},
      {"cast_weight", "host", "highway", takes<"a", "x">, nullptr, cast_weight},
      {"copy", "host", "plain", nullptr, nullptr, copy}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
