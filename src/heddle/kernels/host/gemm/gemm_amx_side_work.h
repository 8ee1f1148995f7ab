// Work of the vector units while the tile unit multiplies: a block product takes a SideWork and calls step() after
// each step of 32 k. It writes results and asks early for the memory that comes next. This took forward products
// from 50 % of the tile unit's rate to 75 % (operands in the second-level cache; from the third, 32 % to 59 %).
//
// Included only by the amx files.
#pragma once

#include "heddle/kernels/host/gemm/gemm_amx_tiles.h"
#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host::amx {

/// A finished block of sums (rows of 32 fp32) on its way to the result, some rows a step. They get the bias and are
/// rounded to the result's type, or are added to what is there.
struct PendingRows {
  const float* sums = nullptr;
  int64_t left = 0;  // rows
  int64_t each_step = 0;
  char* to = nullptr;
  int64_t to_stride = 0;  // bytes
  bool narrow = false;    // bf16
  bool add = false;       // fp32 only
  const float* bias = nullptr;
  __mmask16 low_lanes = 0, high_lanes = 0;

  HEDDLE_AMX_TARGET void set(const float* block, int64_t rows, int64_t columns, void* first, int64_t stride_bytes) {
    sums = block;
    left = rows;
    to = static_cast<char*>(first);
    to_stride = stride_bytes;
    low_lanes = first_lanes_16(columns);
    high_lanes = first_lanes_16(columns - kTile);
  }
  HEDDLE_AMX_TARGET void begin(int64_t steps) { each_step = steps ? (left + steps - 1) / steps : 0; }
  HEDDLE_AMX_TARGET void step() {
    for (int64_t i = 0; i < each_step && left > 0; ++i) write_row();
  }
  HEDDLE_AMX_TARGET void finish() {
    while (left > 0) write_row();
  }
  HEDDLE_AMX_TARGET void write_row() {
    __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + kTile);
    if (bias) {
      low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(low_lanes, bias));
      high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(high_lanes, bias + kTile));
    }
    if (narrow) {
      const auto both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
      if (high_lanes == 0xffff) {
        _mm512_storeu_si512(to, both);
      } else {
        _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(low_lanes) | static_cast<__mmask32>(high_lanes) << 16,
                                 both);
      }
    } else {
      if (add) {
        low = _mm512_add_ps(_mm512_maskz_loadu_ps(low_lanes, to), low);
        high = _mm512_add_ps(_mm512_maskz_loadu_ps(high_lanes, to + 64), high);
      }
      _mm512_mask_storeu_ps(to, low_lanes, low);
      _mm512_mask_storeu_ps(to + 64, high_lanes, high);
    }
    sums += kPanelColumns;
    to += to_stride;
    --left;
  }
};

/// Asks for the lines of a block that will be written soon, one row at a time.
struct ClaimRows {
  const char* row = nullptr;
  int64_t stride = 0;  // bytes
  int64_t left = 0;    // rows
  bool two_lines = false;
  int64_t each_step = 0;

  HEDDLE_AMX_TARGET void begin(int64_t steps) { each_step = steps ? (left + steps - 1) / steps : 0; }
  HEDDLE_AMX_TARGET void step() {
    for (int64_t i = 0; i < each_step && left > 0; ++i, --left, row += stride) {
      __builtin_prefetch(row, 1, 3);
      if (two_lines) __builtin_prefetch(row + 64, 1, 3);
    }
  }
};

/// Brings `rows` rows of some lines each to the second-level cache, some lines a step, over many block products.
struct FetchAhead {
  const char* row = nullptr;
  int64_t stride = 0;  // bytes
  int64_t rows_left = 0;
  int64_t row_bytes = 0;
  int64_t at = 0;  // bytes into the row
  int64_t each_step = 0;

  /// `products` block products of `steps` steps are to fetch it all.
  HEDDLE_AMX_TARGET void set(const void* first, int64_t stride_bytes, int64_t rows, int64_t bytes, int64_t products,
                             int64_t steps) {
    row = static_cast<const char*>(first);
    stride = stride_bytes;
    rows_left = rows;
    row_bytes = bytes;
    at = 0;
    const int64_t lines = rows * ((bytes + 63) / 64), all_steps = products * steps;
    each_step = all_steps ? (lines + all_steps - 1) / all_steps : 0;
  }
  HEDDLE_AMX_TARGET void step() {
    for (int64_t i = 0; i < each_step && rows_left > 0; ++i) {
      _mm_prefetch(row + at, _MM_HINT_T1);
      at += 64;
      if (at >= row_bytes) {
        at = 0;
        row += stride;
        --rows_left;
      }
    }
  }
};

/// All of it. Ahead: what is done for the next rows of A, FetchAhead or SplitAhead.
template <class Ahead>
struct WriteAndFetch {
  PendingRows pending;
  ClaimRows claim;      // the place of this block's results
  ClaimRows next_sums;  // of the next block, when sums wait from run to run
  Ahead ahead;

  HEDDLE_AMX_TARGET void begin(int64_t steps) {
    pending.begin(steps);
    claim.begin(steps);
    next_sums.begin(steps);
  }
  HEDDLE_AMX_TARGET void step() {
    pending.step();
    claim.step();
    next_sums.step();
    ahead.step();
  }
};

}  // namespace heddle::kernels::host::amx
