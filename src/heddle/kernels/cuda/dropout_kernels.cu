// dropout, dropout_add: y = residual + (kept ? factor·(x + bias) : 0), by words of Philox4x32-10
// (base/numbers/philox.h, kernels/dropout_words.h).
#include "heddle/kernels/cuda/dropout_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

struct Words {
  uint32_t word[4];
};

HEDDLE_DEVICE Words philox(Words c, uint32_t k0, uint32_t k1) {
  HEDDLE_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c.word[0], b = uint64_t{0xCD9E8D57} * c.word[2];
    c = Words{{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kDropoutThreads) dropout(DropoutArgs args) {
  const int64_t packs = (args.H + kPack - 1) / kPack;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kDropoutThreads + threadIdx.x;
  if (index >= args.T * packs) return;
  const int64_t t = index / packs, column = index % packs * kPack, left = args.H - column;
  const int64_t at = t * args.H + column;
  const bool wide =
      wide_rows<X>(args.x_TH, args.H) && wide_rows<X>(args.residual_TH, args.H) && wide_rows<X>(args.y_TH, args.H);
  float x[kPack], residual[kPack];
  load_pack(static_cast<const X*>(args.x_TH) + at, left, wide, x);
  if (args.residual_TH != nullptr) load_pack(static_cast<const X*>(args.residual_TH) + at, left, wide, residual);
  const uint32_t token = static_cast<uint32_t>(args.tokens_T[t]);
  const uint32_t low = static_cast<uint32_t>(args.key[0]), high = static_cast<uint32_t>(args.key[1]);
  const uint32_t step = static_cast<uint32_t>(args.key[2]);
  HEDDLE_UNROLL
  for (int half = 0; half < kPack / 4; ++half) {
    const Words drawn =
        philox(Words{{static_cast<uint32_t>(column / 4 + half), token, args.site, step}}, low, high);
    HEDDLE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int i = 4 * half + j;
      if (args.bias_H != nullptr && i < left) x[i] += args.bias_H[column + i];
      x[i] = drawn.word[j] >= args.least_kept ? args.factor * x[i] : 0.0f;
      if (args.residual_TH != nullptr) x[i] = residual[i] + x[i];
    }
  }
  store_pack(static_cast<X*>(args.y_TH) + at, left, wide, x);
}

template HEDDLE_KERNEL void dropout<float>(DropoutArgs args);
template HEDDLE_KERNEL void dropout<Bf16>(DropoutArgs args);

}  // namespace heddle::kernels::cuda
