// AMX tiles for attention: the tile products, and packing of bf16 rows into tiles.
//
// A tile is 16 rows × 64 bytes. tdpbf16ps adds A·B to C. C is 16 × 16 fp32, A is 16 × 32 bf16. B holds 32 × 16 as
// 16 rows of 16 pairs (the pair is two neighbours along the summed dimension). A matrix x has columns c. The four
// packings of a 32-row step are, each tile 1 KB:
//
//   rows         A with 16 rows of x,     summing over c       pairs_across  B with 16 rows of x, summing over c
//   columns      A with 16 columns of x,  summing over rows    pairs_down    B with 16 columns, summing over rows
#pragma once

#include <cstdint>
#include <cstring>

#include "heddle/base/dtype.h"
#include "heddle/kernels/host/attention/attention_avx512_pack.h"
#include "heddle/kernels/host/transpose_words.h"

namespace heddle::kernels::host::attention {

constexpr int64_t kTile = 512;  // bf16 in a tile
constexpr int64_t kSide = 16;

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Tiles are configured while this lives; the state is given back after, which spares later context switches.
class TileState {
 public:
  TileState() {
    static constexpr TileShapes kShapes;
    asm volatile("ldtilecfg %0" ::"m"(kShapes));
  }
  ~TileState() { asm volatile("tilerelease" ::: "memory"); }
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;
};

// Written out, for the compiler's own wrappers do not order a tile load after the stores that it reads.
template <int t>
[[gnu::always_inline]] inline void tile_load(const void* from, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(t) : "memory");
}
template <int t>
[[gnu::always_inline]] inline void tile_store(void* to, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(t) : "memory");
}
template <int t>
[[gnu::always_inline]] inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(t));
}
template <int c, int a, int b>
[[gnu::always_inline]] inline void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

/// Tiles of an operand: where the first is, and how far apart (in bf16) neighbours lie along C and along the sum.
struct Tiles {
  const bf16* data;
  int64_t across, depth;
};

/// fp32 tiles of C: distances (in floats) between tiles down, across, and between rows of a tile.
struct Sums {
  float* data;
  int64_t down, across, row;
};

// C tile (i, j), i < down ≤ 2, j < across ≤ 2, is register 2i + j; A uses registers 4 and 5, B 6 and 7.
template <int down, int across>
[[gnu::always_inline]] inline void zero_sums() {
  tile_zero<0>();
  if (across > 1) tile_zero<1>();
  if (down > 1) tile_zero<2>();
  if (down > 1 && across > 1) tile_zero<3>();
}
template <int down, int across>
[[gnu::always_inline]] inline void load_sums(const Sums& c) {
  tile_load<0>(c.data, c.row * 4);
  if (across > 1) tile_load<1>(c.data + c.across, c.row * 4);
  if (down > 1) tile_load<2>(c.data + c.down, c.row * 4);
  if (down > 1 && across > 1) tile_load<3>(c.data + c.down + c.across, c.row * 4);
}
template <int down, int across>
[[gnu::always_inline]] inline void store_sums(const Sums& c) {
  tile_store<0>(c.data, c.row * 4);
  if (across > 1) tile_store<1>(c.data + c.across, c.row * 4);
  if (down > 1) tile_store<2>(c.data + c.down, c.row * 4);
  if (down > 1 && across > 1) tile_store<3>(c.data + c.down + c.across, c.row * 4);
}
template <int down, int across>
[[gnu::always_inline]] inline void add_products(Tiles a, Tiles b, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    tile_load<4>(a.data + k * a.depth, 64);
    tile_load<6>(b.data + k * b.depth, 64);
    tile_multiply<0, 4, 6>();
    if (across > 1) {
      tile_load<7>(b.data + k * b.depth + b.across, 64);
      tile_multiply<1, 4, 7>();
    }
    if (down > 1) {
      tile_load<5>(a.data + k * a.depth + a.across, 64);
      tile_multiply<2, 5, 6>();
      if (across > 1) tile_multiply<3, 5, 7>();
    }
  }
}

template <int down, int across>
inline void multiply_tiles(Tiles a, Tiles b, int64_t depth, const Sums& c, bool add) {
  if (add) {
    load_sums<down, across>(c);
  } else {
    zero_sums<down, across>();
  }
  add_products<down, across>(a, b, depth);
  store_sums<down, across>(c);
}

/// C (+)= A·B for `down` × `across` tiles of C. add: C is read first, else overwritten.
inline void multiply_tiles(int64_t down, int64_t across, Tiles a, Tiles b, int64_t depth, const Sums& c, bool add) {
  for (int64_t i = 0; i < down; i += 2) {
    for (int64_t j = 0; j < across; j += 2) {
      const Tiles a_i{a.data + i * a.across, a.across, a.depth}, b_j{b.data + j * b.across, b.across, b.depth};
      const Sums c_ij{c.data + i * c.down + j * c.across, c.down, c.across, c.row};
      if (i + 1 < down) {
        if (j + 1 < across) {
          multiply_tiles<2, 2>(a_i, b_j, depth, c_ij, add);
        } else {
          multiply_tiles<2, 1>(a_i, b_j, depth, c_ij, add);
        }
      } else if (j + 1 < across) {
        multiply_tiles<1, 2>(a_i, b_j, depth, c_ij, add);
      } else {
        multiply_tiles<1, 1>(a_i, b_j, depth, c_ij, add);
      }
    }
  }
}

using HeadRows = RowsOf<Bf16Pairs>;

/// 32 elements of a row from column `column` on; zero beyond the matrix.
HEDDLE_AVX512_INLINE __m512i load_row(const HeadRows& x, int64_t row, int64_t column) {
  if (row >= x.length) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(bits_below(x.width - column), x.data + row * x.stride + column);
}

HEDDLE_AVX512_INLINE void store_tile(bf16* to, const __m512i (&r)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, r[i]);
}

/// Rows interleaved by pairs: word c of row i is (x[first + 2i][c], x[first + 2i + 1][c]), 16 columns from
/// `column`.
HEDDLE_AVX512_INLINE void load_pairs_down(const HeadRows& x, int64_t first, int64_t column, __m512i (&r)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512i even = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(load_row(x, first + 2 * i, column)));
    const __m512i odd = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(load_row(x, first + 2 * i + 1, column)));
    r[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
}

/// Tiles of `step` to [row tile of 2][column step]; `width_steps` = columns padded to 32, in 32.
HEDDLE_AVX512 inline void pack_rows(const HeadRows& x, int64_t step, int64_t width_steps, bf16* to) {
  for (int64_t tile = 0; tile < 2; ++tile) {
    for (int64_t c = 0; c < width_steps; ++c) {
      bf16* const rows = to + (tile * width_steps + c) * kTile;
      for (int64_t r = 0; r < kSide; ++r) {
        _mm512_store_si512(rows + r * 32, load_row(x, step * kStep + tile * kSide + r, c * 32));
      }
    }
  }
}

/// Tiles of `step` to [row tile of 2][column step].
HEDDLE_AVX512 inline void pack_pairs_across(const HeadRows& x, int64_t step, int64_t width_steps, bf16* to) {
  for (int64_t tile = 0; tile < 2; ++tile) {
    for (int64_t c = 0; c < width_steps; ++c) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = load_row(x, step * kStep + tile * kSide + i, c * 32);
      transpose_words(r);
      store_tile(to + (tile * width_steps + c) * kTile, r);
    }
  }
}

/// Tiles of `step` to [column tile].
HEDDLE_AVX512 inline void pack_pairs_down(const HeadRows& x, int64_t step, int64_t width_tiles, bf16* to) {
  for (int64_t c = 0; c < width_tiles; ++c) {
    __m512i r[16];
    load_pairs_down(x, step * kStep, c * kSide, r);
    store_tile(to + c * kTile, r);
  }
}

/// Tiles of `step` to [column tile].
HEDDLE_AVX512 inline void pack_columns(const HeadRows& x, int64_t step, int64_t width_tiles, bf16* to) {
  for (int64_t c = 0; c < width_tiles; ++c) {
    __m512i r[16];
    load_pairs_down(x, step * kStep, c * kSide, r);
    transpose_words(r);
    store_tile(to + c * kTile, r);
  }
}

}  // namespace heddle::kernels::host::attention
