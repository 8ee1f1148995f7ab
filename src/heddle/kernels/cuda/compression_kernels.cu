#include "heddle/kernels/cuda/compression_kernels.h"
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/query_positions.h"

namespace heddle::kernels::cuda {

namespace {

/// Walks the tokens of an entry, the window before first: body(n, where in c and z) of the n-th, for column i.
template <class Body>
HEDDLE_DEVICE void for_each_token(const CompressArgs& args, int64_t sequence, int64_t entry, int64_t i, Body body) {
  const int64_t columns = args.series * args.d, last = (entry + 1) * args.m - 1;
  const int64_t start = args.starts == nullptr ? 0 : args.starts[sequence * args.S + last];
  for (int64_t n = 0; n < args.series * args.m; ++n) {
    const int64_t position = (entry + 1 - args.series) * args.m + n;
    if (position < start || position < 0) continue;
    body(n, (sequence * args.S + position) * columns + n / args.m * args.d + i);
  }
}

/// z + bias of the n-th of an entry's tokens; 0 without z.
template <class X>
HEDDLE_DEVICE float exponent_of(const CompressArgs& args, int64_t n, int64_t at, int64_t i) {
  if (args.z == nullptr) return 0.0f;
  return to_float(static_cast<const X*>(args.z)[at]) +
         args.bias[n % args.m * (args.series * args.d) + n / args.m * args.d + i];
}

struct Softmax {
  float most, sum, e;
};
/// The weights' greatest exponent and sum, and the entry's element.
template <class X>
HEDDLE_DEVICE Softmax weigh(const CompressArgs& args, int64_t sequence, int64_t entry, int64_t i) {
  const auto exponent = [&](int64_t n, int64_t at) { return exponent_of<X>(args, n, at, i); };
  Softmax s{-3.402823466e38f, 0, 0};
  for_each_token(args, sequence, entry, i, [&](int64_t n, int64_t at) { s.most = fmaxf(s.most, exponent(n, at)); });
  for_each_token(args, sequence, entry, i, [&](int64_t n, int64_t at) { s.sum += expf(exponent(n, at) - s.most); });
  for_each_token(args, sequence, entry, i, [&](int64_t n, int64_t at) {
    s.e += expf(exponent(n, at) - s.most) / s.sum * to_float(static_cast<const X*>(args.c)[at]);
  });
  return s;
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) compress_rows(CompressArgs args) {
  const int64_t r = blockIdx.x, i = static_cast<int64_t>(blockIdx.y) * kCompressionThreads + threadIdx.x;
  if (i >= args.d) return;
  const int64_t E = args.S / args.m;
  const int64_t place = args.places == nullptr ? r / E * args.S + (r % E + 1) * args.m - 1 : args.places[r];
  const bool ends = place >= 0 && (place % args.S + 1) % args.m == 0;
  const float e = ends ? weigh<X>(args, place / args.S, place % args.S / args.m, i).e : 0.0f;
  static_cast<X*>(args.out)[r * args.d + i] = rounded<X>(e);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) compress_rows_dgrad(CompressArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kCompressionThreads + threadIdx.x;
  if (i >= args.d) return;
  const int64_t E = args.S / args.m, columns = args.series * args.d;
  const int64_t sequence = blockIdx.x / (E + 1), entry = blockIdx.x % (E + 1);
  X *dc = static_cast<X*>(args.out), *dz = static_cast<X*>(args.dz);
  const auto write = [&](int64_t position, int64_t series, float to_c, float to_z) {
    const int64_t at = (sequence * args.S + position) * columns + series * args.d + i;
    dc[at] = rounded<X>(to_c);
    if (dz != nullptr) dz[at] = rounded<X>(to_z);
  };
  if (entry == E) {  // behind the last window; of two series, the first half of that window is read by no entry
    for (int64_t position = E * args.m; position < args.S; ++position) {
      for (int64_t series = 0; series < args.series; ++series) write(position, series, 0, 0);
    }
    for (int64_t n = 0; args.series > 1 && n < args.m; ++n) write((E - 1) * args.m + n, 0, 0, 0);
    return;
  }
  const Softmax s = weigh<X>(args, sequence, entry, i);
  const float de = to_float(static_cast<const X*>(args.de)[(sequence * E + entry) * args.d + i]);
  const int64_t start = args.starts == nullptr ? 0 : args.starts[sequence * args.S + (entry + 1) * args.m - 1];
  for (int64_t n = 0; n < args.series * args.m; ++n) {
    const int64_t position = (entry + 1 - args.series) * args.m + n, series = n / args.m;
    if (position < 0) continue;
    if (position < start) {
      write(position, series, 0, 0);
      continue;
    }
    const int64_t at = (sequence * args.S + position) * columns + series * args.d + i;
    const float p = expf(exponent_of<X>(args, n, at, i) - s.most) / s.sum;
    write(position, series, p * de, p * de * (to_float(static_cast<const X*>(args.c)[at]) - s.e));
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) compress_bias_wgrad(CompressBiasArgs args) {
  const int64_t j = blockIdx.x, i = static_cast<int64_t>(blockIdx.y) * kCompressionThreads + threadIdx.x;
  if (i >= args.columns) return;
  float sum = 0;
  for (int64_t sequence = 0; sequence < args.T; sequence += args.S) {
    for (int64_t position = j; position < args.S; position += args.m)
      sum += to_float(static_cast<const X*>(args.dz)[(sequence + position) * args.columns + i]);
  }
  float& to = args.acc[j * args.columns + i];
  to = args.overwrite ? sum : to + sum;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) list_keys(ListKeysArgs args) {
  const int64_t t = blockIdx.x, end = positions_of(args.rows, t), start = start_of(args.rows, t);
  const int64_t first = end - args.window > start ? end - args.window : start, near = end - first;
  const int64_t entry = first_of(args.rows, t), entries = seen_of(args.rows, t) - entry;
  const int32_t* chosen = args.chosen == nullptr ? nullptr : args.chosen + t * args.chosen_columns;
  int32_t* keys = args.keys + t * args.columns;
  for (int64_t j = threadIdx.x; j < args.columns; j += kCompressionThreads) {
    const int64_t n = j - near;
    int64_t key = -1;
    if (n < 0) {
      key = first + j;
    } else if (chosen != nullptr) {
      if (n < args.chosen_columns && chosen[n] >= 0) key = args.rows.S + chosen[n];
    } else if (n < entries) {
      key = args.rows.S + entry + n;
    }
    keys[j] = static_cast<int32_t>(key);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) join_rows(JoinRowsArgs args) {
  const int64_t row = blockIdx.x, all = args.S + args.E, sequence = row / all, n = row % all;
  uint16_t* together = static_cast<uint16_t*>(args.joined) + row * args.words;
  uint16_t* apart = n < args.S ? static_cast<uint16_t*>(args.k) + (sequence * args.S + n) * args.words
                               : static_cast<uint16_t*>(args.e) + (sequence * args.E + n - args.S) * args.words;
  for (int64_t i = threadIdx.x; i < args.words; i += kCompressionThreads) {
    if (args.join) {
      together[i] = apart[i];
    } else {
      apart[i] = together[i];
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCompressionThreads) regroup_rows(RegroupArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCompressionThreads + threadIdx.x;
  if (i >= args.T * args.G * args.K) return;
  const int64_t k = i % args.K, g = i / args.K % args.G, t = i / args.K / args.G;
  const int64_t apart = (g * args.T + t) * args.K + k;
  static_cast<X*>(args.to)[args.apart ? apart : i] = static_cast<const X*>(args.from)[args.apart ? i : apart];
}

#define COMPRESSION(X)                                                  \
  template HEDDLE_KERNEL void compress_rows<X>(CompressArgs);           \
  template HEDDLE_KERNEL void compress_rows_dgrad<X>(CompressArgs);     \
  template HEDDLE_KERNEL void compress_bias_wgrad<X>(CompressBiasArgs); \
  template HEDDLE_KERNEL void regroup_rows<X>(RegroupArgs);
COMPRESSION(float)
COMPRESSION(Bf16)
#undef COMPRESSION

}  // namespace heddle::kernels::cuda
