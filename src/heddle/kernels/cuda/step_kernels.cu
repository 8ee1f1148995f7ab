// The end of a step; see step_kernels.h. Loshchilov and Hutter, arXiv 1711.05101; exact sums: kernels/exact_grid.h.
#include "heddle/kernels/cuda/e4m3.h"
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kLimbs = 4;

HEDDLE_DEVICE int64_t place() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
HEDDLE_DEVICE int64_t step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
HEDDLE_DEVICE float sum_of_uses(const void* const* acc, int uses, int64_t i) {
  float sum = static_cast<const float*>(acc[0])[i];
  for (int u = 1; u < uses; ++u) sum += static_cast<const float*>(acc[u])[i];
  return sum;
}
/// Σ g² over elements first .. last of a parameter, by a block of 256; board: shared.
HEDDLE_DEVICE double squares(const void* const* acc, int uses, int64_t first, int64_t last, double* of_warps) {
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += 256) {
    const double g = sum_of_uses(acc, uses, i);
    sum += g * g;
  }
  return block_sum(sum, of_warps);
}
/// Σ of doubles, by a block of kSumThreads.
HEDDLE_DEVICE double doubles(const double* parts, int64_t count, double* of_warps) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += parts[i];
  return block_sum(sum, of_warps);
}
/// The number that limbs stand for; carries first, so that equal sums have equal limbs.
HEDDLE_DEVICE double value_of(const double* limbs) {
  double carry = 0, value = 0, weight = 7.888609052210118e-31;  // 2^-100
  for (int i = 0; i < kLimbs; ++i) {
    const double limb = limbs[i] + carry;
    carry = i + 1 < kLimbs ? floor(limb * 0x1p-32) : 0;
    value += (limb - carry * 0x1p32) * weight;
    weight *= 0x1p32;
  }
  return value;
}

/// Eight words of 16 bits, as load_pack has numbers.
HEDDLE_DEVICE void load_halves(const uint16_t* from, int64_t left, bool wide, uint16_t (&to)[kPack]) {
  union {
    Quad quad;
    uint16_t half[kPack];
  } raw;
  if (wide && left >= kPack) raw.quad = *reinterpret_cast<const Quad*>(from);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (wide && left >= kPack) {
      to[i] = raw.half[i];
    } else {
      to[i] = i < left ? from[i] : uint16_t{0};
    }
  }
}
HEDDLE_DEVICE void store_halves(uint16_t* to, int64_t left, bool wide, const uint16_t (&from)[kPack]) {
  union {
    Quad quad;
    uint16_t half[kPack];
  } raw;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) raw.half[i] = from[i];
  if (wide && left >= kPack) {
    *reinterpret_cast<Quad*>(to) = raw.quad;
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = from[i];
  }
}

HEDDLE_DEVICE void move_average(float* averages, const float* masters, float share, int64_t i) {
  const float average = averages[i];
  averages[i] = fmaf(share, masters[i] - average, average);
}

/// The part that a block of the grid is of.
HEDDLE_DEVICE int part_of_block(const PartBlocks& blocks) {
  int low = 0, high = blocks.parts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (blocks.first[middle] <= static_cast<int64_t>(blockIdx.x)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Eight bytes, as load_pack has numbers.
HEDDLE_DEVICE void load_bytes(const uint8_t* from, int64_t left, bool wide, uint8_t (&to)[kPack]) {
  union {
    uint64_t all;
    uint8_t byte[kPack];
  } raw;
  raw.all = 0;
  if (wide && left >= kPack) {
    raw.all = *reinterpret_cast<const uint64_t*>(from);
  } else {
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (i < left) raw.byte[i] = from[i];
    }
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) to[i] = raw.byte[i];
}
HEDDLE_DEVICE void store_bytes(uint8_t* to, int64_t left, bool wide, const uint8_t (&from)[kPack]) {
  union {
    uint64_t all;
    uint8_t byte[kPack];
  } raw;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) raw.byte[i] = from[i];
  if (wide && left >= kPack) {
    *reinterpret_cast<uint64_t*>(to) = raw.all;
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = from[i];
  }
}

constexpr float kMomentUnits = 32;  // ops/moment_byte.h

HEDDLE_DEVICE void load_moments(MomentForm form, const AdamwPart& part, int64_t at, int64_t left, bool wide,
                                float (&m)[kPack], float (&v)[kPack]) {
  if (form == MomentForm::wide) {
    load_pack(static_cast<const float*>(part.m) + at, left, wide, m);
    load_pack(static_cast<const float*>(part.v) + at, left, wide, v);
    return;
  }
  load_pack(static_cast<const Bf16*>(part.v) + at, left, wide, v);
  if (form == MomentForm::rounded) {
    load_pack(static_cast<const Bf16*>(part.m) + at, left, wide, m);
    return;
  }
  uint8_t bytes[kPack];
  load_bytes(static_cast<const uint8_t*>(part.m) + at, left, wide, bytes);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) m[i] = number_of(bytes[i]) * (sqrtf(fabsf(v[i])) * (1 / kMomentUnits));
}
HEDDLE_DEVICE void store_moments(MomentForm form, const AdamwPart& part, int64_t at, int64_t left, bool wide,
                                 const float (&m)[kPack], const float (&v)[kPack]) {
  if (form == MomentForm::wide) {
    store_pack(static_cast<float*>(part.m) + at, left, wide, m);
    store_pack(static_cast<float*>(part.v) + at, left, wide, v);
    return;
  }
  store_pack(static_cast<Bf16*>(part.v) + at, left, wide, v);
  if (form == MomentForm::rounded) {
    store_pack(static_cast<Bf16*>(part.m) + at, left, wide, m);
    return;
  }
  uint8_t bytes[kPack];
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    const float root = sqrtf(fabsf(to_float(rounded<Bf16>(v[i]))));
    bytes[i] = root == 0 ? uint8_t{0} : byte_of(nearest_e4m3(m[i] / root * kMomentUnits));
  }
  store_bytes(static_cast<uint8_t*>(part.m) + at, left, wide, bytes);
}

// Products and sums are made one as the host's kernel makes them (kernels/host/optimizer.cpp): a state has the same
// bits wherever it is updated.
HEDDLE_DEVICE void step_of(const AdamwRule& rule, const AdamwPart& part, const void* const* acc, int uses,
                           int64_t at) {
  constexpr uint32_t kHalf = 0x8000, kSign = 0x80000000u;
  const double clip = rule.clip[0];
  const int64_t left = part.count - at;
  const bool splits = rule.splits;
  if (left <= 0 || (clip == 0 && splits)) return;
  const auto factor = static_cast<float>(clip), rate = static_cast<float>(rule.hyper[0]);
  const auto grown1 = static_cast<float>(1 / rule.hyper[1]), grown2 = static_cast<float>(1 / rule.hyper[2]);
  auto* master = static_cast<float*>(part.master);
  auto* halves = static_cast<uint16_t*>(part.master);
  auto* copy = static_cast<Bf16*>(part.copy);
  bool wide = wide_rows<float>(part.master, 8) && wide_rows<float>(part.m, 8) && wide_rows<float>(part.v, 8) &&
              wide_rows<float>(part.copy, 8);
  for (int u = 0; u < uses; ++u) wide = wide && wide_rows<float>(acc[u], 8);
  float g[kPack], p[kPack], m[kPack], v[kPack], other[kPack];
  uint16_t lows[kPack];
  if (splits) {
    load_pack(copy + at, left, wide, p);
    load_halves(halves + at, left, wide, lows);
  } else {
    load_pack(master + at, left, wide, p);
  }
  if (clip != 0) {
    load_pack(static_cast<const float*>(acc[0]) + at, left, wide, g);
    load_moments(rule.moments, part, at, left, wide, m, v);
    HEDDLE_UNROLL
    for (int i = 0; splits && i < kPack; ++i) {
      const uint32_t low = lows[i];
      const bool up = low == kHalf ? (word_of(v[i]) & kSign) != 0 : low > kHalf;
      p[i] = float_of_word((word_of(p[i]) - (up ? 0x10000u : 0u)) | low);
      v[i] = float_of_word(word_of(v[i]) & ~kSign);
    }
    for (int u = 1; u < uses; ++u) {
      load_pack(static_cast<const float*>(acc[u]) + at, left, wide, other);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) g[i] += other[i];
    }
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      g[i] = factor * g[i];
      m[i] = fmaf(rule.rest1, g[i], rule.beta1 * m[i]);
      v[i] = fmaf(rule.rest2 * g[i], g[i], rule.beta2 * v[i]);
      const float by = m[i] * grown1 / (sqrtf(v[i] * grown2) + rule.epsilon);
      p[i] = fmaf(-rate, fmaf(rule.decay, p[i], by), p[i]);
    }
    HEDDLE_UNROLL
    for (int i = 0; splits && i < kPack; ++i) {
      const uint32_t word = word_of(p[i]), low = word & 0xffffu;
      const bool raised = low == kHalf && rounded<Bf16>(p[i]).bits != word >> 16;
      v[i] = float_of_word(word_of(v[i]) | (raised ? kSign : 0u));
      lows[i] = static_cast<uint16_t>(low);
    }
    store_moments(rule.moments, part, at, left, wide, m, v);
    if (splits) {
      store_halves(halves + at, left, wide, lows);
    } else {
      store_pack(master + at, left, wide, p);
    }
  }
  if (part.copy == nullptr) return;
  if (rule.wide_copy) {
    store_pack(static_cast<float*>(part.copy) + at, left, wide, p);
  } else {
    store_pack(copy + at, left, wide, p);
  }
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) square_sum(SquareSumArgs args) {
  HEDDLE_SHARED(double, of_warps, 256 / kWarp);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSquareBlock;
  const double sum = squares(args.acc.of, args.acc.count, first, min(args.count, first + kSquareBlock), of_warps);
  if (threadIdx.x == 0) args.parts[blockIdx.x] = sum;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) square_sums(SquareSumsArgs args) {
  HEDDLE_SHARED(double, of_warps, 256 / kWarp);
  const int i = part_of_block(args.blocks);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) - args.blocks.first[i]) * kSquareBlock;
  const double sum = squares(args.acc + i, 1, first, min(args.count[i], first + kSquareBlock), of_warps);
  if (threadIdx.x == 0) args.parts[blockIdx.x] = sum;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSumThreads) sum_doubles(SumArgs args) {
  HEDDLE_SHARED(double, of_warps, kSumThreads / kWarp);
  const double sum = doubles(args.parts, args.count, of_warps);
  if (threadIdx.x == 0) args.sum[0] = sum;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSumThreads) sums_of_doubles(SumsArgs args) {
  HEDDLE_SHARED(double, of_warps, kSumThreads / kWarp);
  const auto i = blockIdx.x;
  const int32_t first = args.blocks.first[i];
  const double sum = doubles(args.parts + first, args.blocks.first[i + 1] - first, of_warps);
  if (threadIdx.x == 0) args.sum[i][0] = sum;
}

HEDDLE_KERNEL void sum_parts(PartsArgs args) {
  for (int64_t i = place(); i < args.elements; i += step()) {
    double sum = args.first ? 0 : args.sum[i];
    for (int p = 0; p < args.parts.count; ++p) sum += static_cast<const double*>(args.parts.of[p])[i];
    args.sum[i] = sum;
  }
}

HEDDLE_KERNEL void add_norm_parts(PartsArgs args) {
  if (place() > 0) return;
  double sum = args.first ? 0 : args.sum[0];
  for (int p = 0; p < args.parts.count; ++p) {
    const auto* part = static_cast<const double*>(args.parts.of[p]);
    sum += args.exact ? value_of(part) : part[0];
  }
  args.sum[0] = sum;
}

HEDDLE_KERNEL void grad_norm(NormEndArgs args) {
  if (place() > 0) return;
  const double norm = sqrt(args.sum[0]);
  double clip = args.max_norm > 0 ? fmin(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  if (!(norm < HUGE_VAL)) clip = 0;
  args.norm[0] = norm;
  args.clip[0] = clip;
}

HEDDLE_KERNEL void skip_outlier(SkipOutlierArgs args) {
  if (place() > 0) return;
  const double norm = args.norm[0], loss = args.loss[0];
  const bool finite = fabs(norm) < HUGE_VAL && fabs(loss) < HUGE_VAL;
  const bool skipped = !(finite && norm <= args.limits[0] && loss <= args.limits[1]);
  args.factor[0] = skipped ? 0 : args.clip[0];
  for (int i = 0; i < 4; ++i) args.rates[i] = skipped && i == 3 ? 0 : args.hyper[i];
  args.skipped[0] = skipped ? 1 : 0;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) adamw(AdamwArgs args) {
  step_of(args.rule, args.part, args.acc.of, args.acc.count, place() * kPack);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) adamw_many(AdamwManyArgs args) {
  const int i = part_of_block(args.blocks);
  const int64_t block = static_cast<int64_t>(blockIdx.x) - args.blocks.first[i];
  step_of(args.rule, args.part[i], args.acc + i, 1, (block * 256 + threadIdx.x) * kPack);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) average_master(AverageArgs args) {
  if (args.clip[0] == 0) return;
  for (int64_t i = place(); i < args.count; i += step()) move_average(args.average, args.master, args.share, i);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) average_masters(AveragesArgs args) {
  if (args.clip[0] == 0) return;
  const int part = part_of_block(args.blocks);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) - args.blocks.first[part]) * kAverageBlock;
  const int64_t last = min(args.count[part], first + kAverageBlock);
  for (int64_t i = first + threadIdx.x; i < last; i += 256)
    move_average(args.average[part], args.master[part], args.share, i);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) add_on_grid(GridArgs args) {
  constexpr double kShift = 1.5 * 64;
  for (int64_t i = place(); i < args.count; i += step()) {
    const double p = args.partial[i];
    const double on_grid = (p + kShift) - kShift, total = args.overwrite ? on_grid : args.sum[i] + on_grid;
    args.sum[i] = fabs(p) < 32 && fabs(total) < 64 ? total : static_cast<double>(not_a_number());
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) round_gradient(RoundArgs args) {
  for (int64_t i = place(); i < args.count; i += step()) {
    double sum = 0;
    for (int u = 0; u < args.sums.count; ++u) sum += static_cast<const double*>(args.sums.of[u])[i];
    args.g[i] = static_cast<float>(sum);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) exact_squares(ExactSquareArgs args) {
  HEDDLE_SHARED(unsigned long long, of_warps, 256 * 3);
  __int128 sum = 0;
  unsigned long long broken = 0;
  for (int64_t i = place(); i < args.count; i += step()) {
    const double g = args.g[i], high = g * g * 0x1p37;
    if (!(high < 0x1p62)) {
      broken = 1;
      continue;
    }
    const auto whole = static_cast<long long>(high);  // the rest has 63 bits more
    sum +=
        (static_cast<__int128>(whole) << 63) + static_cast<long long>((high - static_cast<double>(whole)) * 0x1p63);
  }
  const auto bits = static_cast<unsigned __int128>(sum);
  of_warps[threadIdx.x * 3] = static_cast<unsigned long long>(bits);
  of_warps[threadIdx.x * 3 + 1] = static_cast<unsigned long long>(bits >> 64);
  of_warps[threadIdx.x * 3 + 2] = broken;
  __syncthreads();
  if (threadIdx.x > 0) return;
  unsigned __int128 all = 0;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<unsigned __int128>(of_warps[i * 3 + 1]) << 64 | of_warps[i * 3];
    broken |= of_warps[i * 3 + 2];
  }
  args.parts[blockIdx.x * 3] = static_cast<unsigned long long>(all);
  args.parts[blockIdx.x * 3 + 1] = static_cast<unsigned long long>(all >> 64);
  args.parts[blockIdx.x * 3 + 2] = broken;
}

HEDDLE_KERNEL void exact_limbs(ExactSquareArgs args) {
  if (place() > 0) return;
  unsigned __int128 all = 0;
  unsigned long long broken = 0;
  for (int64_t i = 0; i < args.count; ++i) {
    all += static_cast<unsigned __int128>(args.parts[i * 3 + 1]) << 64 | args.parts[i * 3];
    broken |= args.parts[i * 3 + 2];
  }
  for (int i = 0; i < kLimbs; ++i) {
    args.limbs[i] =
        broken != 0 ? static_cast<double>(not_a_number()) : static_cast<double>(static_cast<uint32_t>(all));
    all >>= 32;
  }
}

HEDDLE_KERNEL void segments(SegmentsArgs args) {
  if (place() > 0) return;
  for (int64_t e = 0; e < args.experts; ++e) {
    int32_t first = args.offsets[e];
    for (int64_t s = 0; s < args.sources; ++s) {
      args.first[e * args.sources + s] = first;
      if (args.n != nullptr) first += args.n[(args.sources + s) * args.experts + e];
    }
  }
  args.first[args.experts * args.sources] = args.offsets[args.experts];
}

HEDDLE_KERNEL void shift_ids(ShiftIdsArgs args) {
  for (int64_t i = place(); i < args.count; i += step()) {
    const int32_t id = args.ids[i];
    const bool here = id >= args.first && id - args.first < args.size;
    args.to[i] = id < 0 ? -1 : here ? id - args.first : args.outside;
  }
}

}  // namespace heddle::kernels::cuda
