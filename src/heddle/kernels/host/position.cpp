// rope, and the assembly of MLA's keys and values with it (DeepSeek-V2, arXiv 2405.04434, section 2.1), each in one
// pass without a temporary. T tokens, h heads, d head dim, n elements without rope, r with, v value elements, S
// positions; a row of the table is r/2 cosines, then r/2 sines.
// An interleaved bf16 pair is one 32-bit word: its halves part and meet again without a shuffle.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/position.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/mla_sizes.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

struct Pairs {
  V a, b;
};

/// Pairs i, i+1, … of r elements: (2i, 2i+1) when interleaved, else (i, i + r/2).
template <bool interleaved, class X, class Lanes>
HWY_INLINE Pairs load_pairs(const X* x_r, int64_t r, int64_t i, Lanes lanes) {
  if constexpr (!interleaved) {
    return {load(x_r + i, lanes), load(x_r + r / 2 + i, lanes)};
  } else if constexpr (std::is_same_v<X, bf16>) {
    const auto words = hn::BitCast(Words(), load(reinterpret_cast<const float*>(x_r + 2 * i), lanes));
    return {hn::BitCast(Floats(), hn::ShiftLeft<16>(words)),
            hn::BitCast(Floats(), hn::And(words, hn::Set(Words(), 0xffff0000u)))};
  } else {
    const float* from = x_r + 2 * i;
    HWY_ALIGN float pairs[2 * kLanes] = {};
    if constexpr (std::is_same_v<Lanes, Part>) {
      std::memcpy(pairs, from, static_cast<size_t>(lanes.count) * 8);
      from = pairs;
    }
    V a = zero(), b = zero();  // a Pairs of its own accord would be made without vectors
    hn::LoadInterleaved2(Floats(), from, a, b);
    return {a, b};
  }
}

template <bool interleaved, class X, class Lanes>
HWY_INLINE void store_pairs(Pairs pairs, X* x_r, int64_t r, int64_t i, Lanes lanes) {
  if constexpr (!interleaved) {
    store(pairs.a, x_r + i, lanes);
    store(pairs.b, x_r + r / 2 + i, lanes);
  } else if constexpr (std::is_same_v<X, bf16>) {
    const auto words = hn::Or(bf16_bits(pairs.a), hn::ShiftLeft<16>(bf16_bits(pairs.b)));
    store(hn::BitCast(Floats(), words), reinterpret_cast<float*>(x_r + 2 * i), lanes);
  } else if constexpr (std::is_same_v<Lanes, Part>) {
    HWY_ALIGN float both[2 * kLanes];
    hn::StoreInterleaved2(pairs.a, pairs.b, Floats(), both);
    std::memcpy(x_r + 2 * i, both, static_cast<size_t>(lanes.count) * 8);
  } else {
    hn::StoreInterleaved2(pairs.a, pairs.b, Floats(), x_r + 2 * i);
  }
}

/// The angles of one token.
struct Angles {
  const float* cosines;  // r/2, followed by the sines
  int64_t r;
  bool inverse;

  template <class Lanes>
  HWY_INLINE Pairs turn(Pairs x, int64_t i, Lanes lanes) const {
    const V cosine = load(cosines + i, lanes), sine = load(cosines + r / 2 + i, lanes);
    const V a_sine = hn::Mul(x.a, sine), b_sine = hn::Mul(x.b, sine);
    const V a_cosine = hn::Mul(x.a, cosine), b_cosine = hn::Mul(x.b, cosine);
    if (inverse) return {hn::Add(a_cosine, b_sine), hn::Sub(b_cosine, a_sine)};
    return {hn::Sub(a_cosine, b_sine), hn::Add(b_cosine, a_sine)};
  }
  template <bool interleaved, class X>
  HWY_INLINE void turn_all(const X* from_r, X* to_r) const {
    sweep(r / 2, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      store_pairs<interleaved>(turn(load_pairs<interleaved>(from_r, r, i, lanes), i, lanes), to_r, r, i, lanes);
    });
  }
};

/// Turns, in each of h heads of d, the r elements from `first` on; copies the others.
template <bool interleaved, class X>
HWY_INLINE void turn_heads(const Angles& angles, int64_t h, int64_t d, int64_t first, const X* from, X* to) {
  const int64_t behind = first + angles.r;
  for (int64_t j = 0; j < h; ++j, from += d, to += d) {
    copy(from, first, to);
    angles.turn_all<interleaved>(from + first, to + first);
    copy(from + behind, d - behind, to + behind);
  }
}

/// Calls rows(X, interleaved) with types that say which.
template <class Rows>
HWY_INLINE void by_type_and_pairing(const KernelCall& call, const Rows& rows) {
  const bool interleaved = call.op->attributes.integer_or("interleaved", 0) != 0;
  if (call.in[0].dtype == Dtype::bf16) {
    interleaved ? rows(bf16(), std::true_type()) : rows(bf16(), std::false_type());
  } else {
    interleaved ? rows(float(), std::true_type()) : rows(float(), std::false_type());
  }
}

/// One token: per head kv = (k_nope, value); k = (k_nope, kr), with the kr that stands in head 0 of k already.
template <class X>
HWY_INLINE void assemble(const MlaSizes& mla, const X* kv, X* k, X* value) {
  const auto [h, n, r, v] = mla;
  const X* kr = k + n;
  for (int64_t j = 0; j < h; ++j) {
    copy(kv + j * (n + v), n, k + j * (n + r));
    copy(kv + j * (n + v) + n, v, value + j * v);
    if (j > 0) copy(kr, r, k + j * (n + r) + n);
  }
}

/// One token: the adjoint but for dkr.
template <class X>
HWY_INLINE void take_apart(const MlaSizes& mla, const X* dk, const X* dvalue, X* dkv) {
  const auto [h, n, r, v] = mla;
  for (int64_t j = 0; j < h; ++j) {
    copy(dk + j * (n + r), n, dkv + j * (n + v));
    copy(dvalue + j * v, v, dkv + j * (n + v) + n);
  }
}

/// Pairs i, … of Σ over heads of dk's last r elements, in increasing head.
template <bool interleaved, class X, class Lanes>
HWY_INLINE Pairs sum_of_heads(const MlaSizes& mla, const X* dk, int64_t i, Lanes lanes) {
  Pairs sum{zero(), zero()};
  for (int64_t j = 0; j < mla.h; ++j) {
    const Pairs term = load_pairs<interleaved>(dk + j * (mla.n + mla.r) + mla.n, mla.r, i, lanes);
    sum = {hn::Add(sum.a, term.a), hn::Add(sum.b, term.b)};
  }
  return sum;
}
}  // namespace

void RopeRows(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& at = call.op->attributes;
  const int64_t h = at.integer("heads"), d = at.integer("head_dim"), r = at.integer("rope_dim");
  const int64_t S = at.integer("sequence"), first = at.integer_or("first", d - r);
  const bool inverse = at.integer_or("inverse", 0) != 0;
  by_type_and_pairing(call, [&](auto x, auto interleaved) HEDDLE_BODY {
    using X = decltype(x);
    for (int64_t t = begin; t < end; ++t) {
      const Angles angles{call.in[1].as<const float>() + t % S * r, r, inverse};
      turn_heads<interleaved>(angles, h, d, first, call.in[0].as<const X>() + t * h * d,
                              call.out[0].as<X>() + t * h * d);
    }
  });
}

void MlaAssembleRows(const KernelCall& call, int64_t begin, int64_t end) {
  const MlaSizes mla(call.op->attributes);
  by_type_and_pairing(call, [&](auto x, auto) HEDDLE_BODY {
    using X = decltype(x);
    for (int64_t t = begin; t < end; ++t) {
      X* k = call.out[0].as<X>() + t * mla.h * (mla.n + mla.r);
      copy(call.in[1].as<const X>() + t * mla.r, mla.r, k + mla.n);
      assemble(mla, call.in[0].as<const X>() + t * mla.h * (mla.n + mla.v), k,
               call.out[1].as<X>() + t * mla.h * mla.v);
    }
  });
}

void MlaAssembleDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  const MlaSizes mla(call.op->attributes);
  by_type_and_pairing(call, [&](auto x, auto) HEDDLE_BODY {
    using X = decltype(x);
    for (int64_t t = begin; t < end; ++t) {
      const X* dk = call.in[0].as<const X>() + t * mla.h * (mla.n + mla.r);
      X* dkr = call.out[1].as<X>() + t * mla.r;
      take_apart(mla, dk, call.in[1].as<const X>() + t * mla.h * mla.v,
                 call.out[0].as<X>() + t * mla.h * (mla.n + mla.v));
      sweep(mla.r, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
        V sum = zero();
        for (int64_t j = 0; j < mla.h; ++j) {
          sum = hn::Add(sum, load(dk + j * (mla.n + mla.r) + mla.n + i, lanes));
        }
        store(sum, dkr + i, lanes);
      });
    }
  });
}

void MlaRopeRows(const KernelCall& call, int64_t begin, int64_t end) {
  const MlaSizes mla(call.op->attributes);
  const int64_t S = call.op->attributes.integer("sequence"), d = mla.n + mla.r;
  by_type_and_pairing(call, [&](auto x, auto interleaved) HEDDLE_BODY {
    using X = decltype(x);
    for (int64_t t = begin; t < end; ++t) {
      const Angles angles{call.in[3].as<const float>() + t % S * mla.r, mla.r, false};
      const int64_t at = t * mla.h * d;
      turn_heads<interleaved>(angles, mla.h, d, mla.n, call.in[0].as<const X>() + at, call.out[0].as<X>() + at);
      X* k = call.out[1].as<X>() + at;
      angles.turn_all<interleaved>(call.in[2].as<const X>() + t * mla.r, k + mla.n);
      assemble(mla, call.in[1].as<const X>() + t * mla.h * (mla.n + mla.v), k,
               call.out[2].as<X>() + t * mla.h * mla.v);
    }
  });
}

void MlaRopeDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  const MlaSizes mla(call.op->attributes);
  const int64_t S = call.op->attributes.integer("sequence"), d = mla.n + mla.r;
  by_type_and_pairing(call, [&](auto x, auto interleaved) HEDDLE_BODY {
    using X = decltype(x);
    for (int64_t t = begin; t < end; ++t) {
      const Angles angles{call.in[3].as<const float>() + t % S * mla.r, mla.r, true};
      const int64_t at = t * mla.h * d;
      turn_heads<interleaved>(angles, mla.h, d, mla.n, call.in[0].as<const X>() + at, call.out[0].as<X>() + at);
      const X* dk = call.in[1].as<const X>() + at;
      take_apart(mla, dk, call.in[2].as<const X>() + t * mla.h * mla.v,
                 call.out[1].as<X>() + t * mla.h * (mla.n + mla.v));
      X* dkr = call.out[2].as<X>() + t * mla.r;
      sweep(mla.r / 2, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
        store_pairs<interleaved>(angles.turn(sum_of_heads<interleaved>(mla, dk, i, lanes), i, lanes), dkr, mla.r, i,
                                 lanes);
      });
    }
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(RopeRows);
HWY_EXPORT(MlaAssembleRows);
HWY_EXPORT(MlaAssembleDgradRows);
HWY_EXPORT(MlaRopeRows);
HWY_EXPORT(MlaRopeDgradRows);

/// Rows of the first operand; all operands move once.
void rows(const KernelCall& call, RowKernel piece) {
  int64_t columns = 0;
  for (const device::TensorView& view : call.out) columns += 2 * view.columns();
  over_rows(call, call.in[0].rows(), columns * size_of(call.in[0].dtype), piece);
}
void rope(const KernelCall& call) { rows(call, HWY_DYNAMIC_DISPATCH(RopeRows)); }
void mla_assemble(const KernelCall& call) { rows(call, HWY_DYNAMIC_DISPATCH(MlaAssembleRows)); }
void mla_assemble_dgrad(const KernelCall& call) { rows(call, HWY_DYNAMIC_DISPATCH(MlaAssembleDgradRows)); }
void mla_rope(const KernelCall& call) { rows(call, HWY_DYNAMIC_DISPATCH(MlaRopeRows)); }
void mla_rope_dgrad(const KernelCall& call) { rows(call, HWY_DYNAMIC_DISPATCH(MlaRopeDgradRows)); }

}  // namespace

std::vector<KernelEntry> rope_kernels() {
  return {{"rope", "host", "highway", takes<"xa">, nullptr, rope},
          {"mla_assemble", "host", "highway", takes<"xx">, nullptr, mla_assemble},
          {"mla_assemble_dgrad", "host", "highway", takes<"xx">, nullptr, mla_assemble_dgrad},
          {"mla_rope", "host", "highway", takes<"xxxa">, nullptr, mla_rope},
          {"mla_rope_dgrad", "host", "highway", takes<"xxxa">, nullptr, mla_rope_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
