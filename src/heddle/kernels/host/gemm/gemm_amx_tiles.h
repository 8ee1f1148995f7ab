// The tile product of the amx engine, and the vector moves that bring operands into tile form. Included only by the
// amx files; everything here is compiled for AMX and called only after amx_bf16() said yes.
//
// A tile is 16 rows of 64 bytes. C: 16 × 16 fp32. A: 16 rows × 32 k of bf16. B: 16 pairs of k × 16 columns × 2
// bf16. A block is 2 × 2 tiles of C (32 × 32). Each step of 32 k loads two tiles of A and two of B for four
// products, the least traffic that eight tiles allow. A "step pair" of B (2 KiB) is its two tiles, left columns
// first.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "heddle/kernels/host/transpose_words.h"

namespace heddle::kernels::host::amx {

constexpr int64_t kTile = 16;            // rows, and columns of fp32
constexpr int64_t kStep = 32;            // k of one tile product
constexpr int64_t kTileElements = 512;   // bf16 of a tile
constexpr int64_t kPairElements = 1024;  // bf16 of a step pair

#define HEDDLE_AMX_FEATURES "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,bmi2"
#define HEDDLE_AMX_TARGET [[gnu::target(HEDDLE_AMX_FEATURES)]]
#define HEDDLE_AMX_LAMBDA __attribute__((target(HEDDLE_AMX_FEATURES)))
#define HEDDLE_AMX HEDDLE_AMX_TARGET static inline

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

/// GCC 12's tile intrinsics do not tell the compiler which memory they read (the configuration: only its first 8
/// bytes). So this forces earlier stores into memory.
HEDDLE_AMX void pass_memory_to_tiles(const void* memory) { asm volatile("" ::"r"(memory) : "memory"); }

/// Tiles 0–3 are C (row-major in the block), 4–5 A, 6–7 B. Blocks of `rows` rows, 1 to 32.
HEDDLE_AMX void configure_tiles(int64_t rows) {
  TileConfig config;
  const auto upper = static_cast<uint8_t>(rows < kTile ? rows : kTile);
  const auto lower = static_cast<uint8_t>(rows > kTile ? rows - kTile : kTile);
  for (int i = 0; i < 8; ++i) config.bytes_per_row[i] = 64;
  config.rows[0] = config.rows[1] = config.rows[4] = upper;
  config.rows[2] = config.rows[3] = config.rows[5] = lower;
  config.rows[6] = config.rows[7] = kTile;
  pass_memory_to_tiles(&config);
  _tile_loadconfig(&config);
}

/// Numbers that a step multiplies: bf16 operands, or fp32 ones in three bf16 parts each (see gemm_amx_split.h).
enum class Numbers : uint8_t { bf16, split_fp32 };
constexpr int64_t parts_of(Numbers numbers) { return numbers == Numbers::bf16 ? 1 : 3; }

/// A of one block over one run of k: two tile rows, and the step from one 32 k to the next. After the last full
/// step there may be a zero-padded one held elsewhere. Split operands are step pairs, one for each part, side by
/// side.
struct LeftOperand {
  const uint16_t* upper = nullptr;
  const uint16_t* lower = nullptr;
  int64_t row_stride = 0;          // bytes
  int64_t step_stride = 0;         // elements
  const uint16_t* tail = nullptr;  // 32 rows × 32 k, contiguous; null when there is no padded step
};

/// One step of 32 k. B passes through the nearest cache once and A many times, hence the hint on B's loads; with
/// it, a run of 512 k of A stays there (measured: 83 % of the tile unit's rate instead of 62 %).
template <int kRowTiles, int kColumnTiles>
HEDDLE_AMX void multiply_step(const uint16_t* upper, const uint16_t* lower, int64_t row_stride, const uint16_t* b) {
  _tile_stream_loadd(6, b, 64);
  _tile_loadd(4, upper, row_stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumnTiles == 2) {
    _tile_stream_loadd(7, b + kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kRowTiles == 2) {
    _tile_loadd(5, lower, row_stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

/// Multiplies a step of split operands, which holds its three parts one after the other. Small terms come first as
/// far as each product can share an operand with the one before, which takes 14 tile loads for 24 products.
template <int kRowTiles, int kColumnTiles>
HEDDLE_AMX void multiply_split_step(const uint16_t* a, const uint16_t* b) {
  const auto left = [a](int64_t part) HEDDLE_AMX_LAMBDA {
    _tile_loadd(4, a + part * kPairElements, 64);
    if constexpr (kRowTiles == 2) _tile_loadd(5, a + part * kPairElements + kTileElements, 64);
  };
  const auto right = [b](int64_t part) HEDDLE_AMX_LAMBDA {
    _tile_loadd(6, b + part * kPairElements, 64);
    if constexpr (kColumnTiles == 2) _tile_loadd(7, b + part * kPairElements + kTileElements, 64);
  };
  const auto multiply = []() HEDDLE_AMX_LAMBDA {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumnTiles == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRowTiles == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
  };
  left(2);
  right(0);
  multiply();
  left(1);
  multiply();
  right(1);
  multiply();
  left(0);
  multiply();
  right(2);
  multiply();
  right(0);
  multiply();
}

/// C (+)= A · B. `c` is row-major with `c_stride` bytes a row. `steps` counts full steps. SideWork: see
/// gemm_amx_side_work.h.
template <Numbers kNumbers, int kRowTiles, int kColumnTiles, class SideWork>
HEDDLE_AMX void multiply_block(const LeftOperand& a, int64_t steps, const uint16_t* b, float* c, int64_t c_stride,
                               bool accumulate, SideWork& side_work) {
  pass_memory_to_tiles(c);
  float* c_lower = reinterpret_cast<float*>(reinterpret_cast<char*>(c) + kTile * c_stride);
  if (accumulate) {
    _tile_loadd(0, c, c_stride);
    if constexpr (kColumnTiles == 2) _tile_loadd(1, c + kTile, c_stride);
    if constexpr (kRowTiles == 2) _tile_loadd(2, c_lower, c_stride);
    if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_loadd(3, c_lower + kTile, c_stride);
  } else {
    _tile_zero(0);
    if constexpr (kColumnTiles == 2) _tile_zero(1);
    if constexpr (kRowTiles == 2) _tile_zero(2);
    if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_zero(3);
  }
  const uint16_t* upper = a.upper;
  const uint16_t* lower = a.lower;
  side_work.begin(steps);
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (kNumbers == Numbers::bf16) {
      multiply_step<kRowTiles, kColumnTiles>(upper, lower, a.row_stride, b);
    } else {
      multiply_split_step<kRowTiles, kColumnTiles>(upper, b);
    }
    side_work.step();
    upper += a.step_stride;
    lower += a.step_stride;
    b += parts_of(kNumbers) * kPairElements;
  }
  if constexpr (kNumbers == Numbers::bf16) {
    if (a.tail) multiply_step<kRowTiles, kColumnTiles>(a.tail, a.tail + kTileElements, 64, b);
  }
  _tile_stored(0, c, c_stride);
  if constexpr (kColumnTiles == 2) _tile_stored(1, c + kTile, c_stride);
  if constexpr (kRowTiles == 2) _tile_stored(2, c_lower, c_stride);
  if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_stored(3, c_lower + kTile, c_stride);
}

/// The block product for any edge: rows 1–32 (as configured), columns 1–32.
template <Numbers kNumbers, class SideWork>
HEDDLE_AMX void multiply_edge_block(int64_t rows, int64_t columns, const LeftOperand& a, int64_t steps,
                                    const uint16_t* b, float* c, int64_t c_stride, bool accumulate,
                                    SideWork& side_work) {
  if (rows > kTile) {
    if (columns > kTile) return multiply_block<kNumbers, 2, 2>(a, steps, b, c, c_stride, accumulate, side_work);
    return multiply_block<kNumbers, 2, 1>(a, steps, b, c, c_stride, accumulate, side_work);
  }
  if (columns > kTile) return multiply_block<kNumbers, 1, 2>(a, steps, b, c, c_stride, accumulate, side_work);
  return multiply_block<kNumbers, 1, 1>(a, steps, b, c, c_stride, accumulate, side_work);
}

/// The lowest `count` lanes, 0 to 32 or 0 to 16.
HEDDLE_AMX __mmask32 first_lanes_32(int64_t count) {
  return count >= 32 ? 0xffffffffu : static_cast<__mmask32>((1u << (count < 0 ? 0 : count)) - 1u);
}
HEDDLE_AMX __mmask16 first_lanes_16(int64_t count) {
  return static_cast<__mmask16>(first_lanes_32(count < 16 ? count : 16));
}

/// 32 bf16 of a row of bf16 or fp32, rounded to nearest even; lanes at `count` and beyond are zero and not read.
HEDDLE_AMX __m512i load_bf16(const uint16_t* row, int64_t count) {
  return _mm512_maskz_loadu_epi16(first_lanes_32(count), row);
}
HEDDLE_AMX __m512i load_bf16(const float* row, int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes_16(count), row);
  const __m512 high = _mm512_maskz_loadu_ps(first_lanes_16(count - 16), row + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// out[p][c] = (row[2p][c], row[2p+1][c]): 32 rows × 32 columns of k-major data to a step pair of B tiles. Rows at
/// `depth` and beyond and columns at `columns` and beyond are zero and not read. `stride` in elements.
template <class T>
HEDDLE_AMX void interleave_pairs(const T* rows, int64_t stride, int64_t depth, int64_t columns, uint16_t* out) {
  const __m512i low_half = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i high_half = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  for (int64_t pair = 0; pair < kTile; ++pair) {
    const int64_t d = 2 * pair;
    const __m512i even = d < depth ? load_bf16(rows + d * stride, columns) : _mm512_setzero_si512();
    const __m512i odd = d + 1 < depth ? load_bf16(rows + (d + 1) * stride, columns) : _mm512_setzero_si512();
    const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    // Lanes of 128 bits now hold columns 0–3, 8–11, … and 4–7, 12–15, …
    _mm512_store_si512(out + pair * 32, _mm512_permutex2var_epi64(low, low_half, high));
    _mm512_store_si512(out + kTileElements + pair * 32, _mm512_permutex2var_epi64(low, high_half, high));
  }
}

}  // namespace heddle::kernels::host::amx
