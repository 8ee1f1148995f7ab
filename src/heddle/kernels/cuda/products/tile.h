// Products of tiles in shared memory by one warp, and the copying of tiles from global memory. Products in bf16 use
// fragments of the tensor cores' m16n8k16, in f32 fused multiply-adds in the same layout.
//
// 32 lanes form c[16·MT, 8·NT] += Σ_k a(i, k)·b(k, j), k increasing. A lane holds of each 16×8 fragment the
// elements (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1), g = lane ÷ 4, t = lane mod 4. A tile lies in rows of `pitch`
// numbers, either by its outer index (i or j) or by k. The lanes are a warp, or one half of a warp of 64, whose
// halves form tiles of their own side by side.
//
// Five functions hold all that is of one vendor: load_matrices, load_matrices_transposed, multiply_fragment,
// copy_async with end_copies, wait_for_copies. Each has a plain form, by shuffles and plain accesses, which is what
// devices without PTX run (HEDDLE_PLAIN_TILES).
#pragma once

#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

/// Lanes that form a tile together.
constexpr int kTileLanes = 32;
HEDDLE_DEVICE int tile_lane() { return static_cast<int>(threadIdx.x) % kTileLanes; }

/// Numbers that pad a row of shared memory: eight rows then start in different banks.
template <class X>
constexpr int kRowPad = 16 / static_cast<int>(sizeof(X));

// ---- Plain forms

/// The value that a lane of this tile has, the number of the lane among the tile's.
template <class T>
HEDDLE_DEVICE T from_tile_lane(T value, int lane) {
  const int first = static_cast<int>(threadIdx.x) % kWarp / kTileLanes * kTileLanes;
  return __shfl_sync(kFullWarp, value, first + lane);
}

template <bool transposed>
HEDDLE_DEVICE void plain_load_matrices(uint32_t (&r)[4], const Bf16* row) {
  const int lane = tile_lane();
  check_aligned(row);
  const auto address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(row));
  HEDDLE_UNROLL
  for (int m = 0; m < 4; ++m) {
    r[m] = 0;
    HEDDLE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int stored_row = transposed ? lane % 4 * 2 + i : lane / 4;
      const int stored_column = transposed ? lane / 4 : lane % 4 * 2 + i;
      // Every lane takes part in each exchange of addresses, whichever row it asks for.
      const auto* from =
          reinterpret_cast<const Bf16*>(static_cast<uintptr_t>(from_tile_lane(address, m * 8 + stored_row)));
      r[m] |= static_cast<uint32_t>(from[stored_column].bits) << (16 * i);
    }
  }
}

/// Fused multiply-adds in increasing k.
HEDDLE_DEVICE void plain_multiply_fragment(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const int g = tile_lane() / 4, t = tile_lane() % 4;
  const auto number = [](uint32_t word, int i) { return float_of_word(word >> (16 * i) << 16); };
  HEDDLE_UNROLL
  for (int half = 0; half < 2; ++half) {  // eight of k each
    const uint32_t b = half == 0 ? b0 : b1;
    HEDDLE_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t rows[2] = {from_tile_lane(a[2 * half], g * 4 + pair),
                                from_tile_lane(a[2 * half + 1], g * 4 + pair)};
      const uint32_t columns[2] = {from_tile_lane(b, 2 * t * 4 + pair), from_tile_lane(b, (2 * t + 1) * 4 + pair)};
      HEDDLE_UNROLL
      for (int k = 0; k < 2; ++k) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) c[i] = fmaf(number(rows[i / 2], k), number(columns[i % 2], k), c[i]);
      }
    }
  }
}

// ---- The five functions

#if defined(__CUDACC__) && !defined(HEDDLE_PLAIN_TILES)
HEDDLE_DEVICE void load_matrices(uint32_t (&r)[4], const Bf16* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
HEDDLE_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const Bf16* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
HEDDLE_DEVICE void multiply_fragment(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// 16 bytes from global to shared memory, of which the last 16 − `bytes` become zeros.
HEDDLE_DEVICE void copy_async(void* to, const void* from, int bytes) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
HEDDLE_DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `open` of the groups of copies that this thread has ended are under way.
template <int open>
HEDDLE_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}
#else
HEDDLE_DEVICE void load_matrices(uint32_t (&r)[4], const Bf16* row) { plain_load_matrices<false>(r, row); }
HEDDLE_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const Bf16* row) {
  plain_load_matrices<true>(r, row);
}
#ifdef __CUDACC__
HEDDLE_DEVICE void multiply_fragment(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  plain_multiply_fragment(c, a, b0, b1);
}
/// At once; those that wait for it have a barrier behind their wait.
HEDDLE_DEVICE void copy_async(void* to, const void* from, int bytes) {
  if (bytes == 16) {
    *static_cast<Quad*>(to) = *static_cast<const Quad*>(from);
    return;
  }
  for (int i = 0; i < 16; ++i)
    static_cast<unsigned char*>(to)[i] = i < bytes ? static_cast<const unsigned char*>(from)[i] : 0;
}
HEDDLE_DEVICE void end_copies() {}
template <int open>
HEDDLE_DEVICE void wait_for_copies() {}
#else
/// As the plain form, with one exchange of all operands.
inline void multiply_fragment(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Words {
    uint32_t a[4], b[2];
  };
  const Words own{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const int first = emulator::lane() / kTileLanes * kTileLanes, g = tile_lane() / 4, t = tile_lane() % 4;
  emulator::exchange(&own, sizeof own);
  const unsigned char* const boards = emulator::shown(first);  // the tile's lanes have met: all of them are there
  const auto half = [](uint32_t word, int i) { return emulator::float_of((word >> (16 * i) & 0xffffu) << 16); };
  float rows[2][16], columns[2][16];  // rows g and g + 8 of a, columns 2 t and 2 t + 1 of b
  for (int lane = 0; lane < 4; ++lane) {
    Words of_a, of_b[2];
    std::memcpy(&of_a, boards + (4 * g + lane) * emulator::kBoardBytes, sizeof of_a);
    for (int j = 0; j < 2; ++j)
      std::memcpy(&of_b[j], boards + (4 * (2 * t + j) + lane) * emulator::kBoardBytes, sizeof of_b[j]);
    for (int k = 2 * lane; k < 16; k += k % 2 == 0 ? 1 : 7) {
      for (int i = 0; i < 2; ++i) {
        rows[i][k] = half(of_a.a[i + k / 8 * 2], k % 2);
        columns[i][k] = half(of_b[i].b[k / 8], k % 2);
      }
    }
  }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) c[i] += rows[i / 2][k] * columns[i % 2][k];
}
inline void copy_async(void* to, const void* from, int bytes) {
  check_aligned(to);
  check_aligned(from);
  emulator::begin_copy(to, from, bytes);
}
inline void end_copies() { emulator::end_copies(); }
template <int open>
void wait_for_copies() {
  emulator::finish_copies(open);
}
#endif
#endif

/// c += a·b over K numbers (a multiple of 16). a points at its first row (or, by k, its first column), b likewise.
template <bool a_by_k, bool b_by_k, int MT, int NT>
HEDDLE_DEVICE void multiply_tile(float (&c)[MT][NT][4], const Bf16* a, int a_pitch, const Bf16* b, int b_pitch,
                                 int K) {
  static_assert(NT % 2 == 0, "b is loaded two fragments at a time");
  const int lane = tile_lane(), row = lane % 8, matrix = lane / 8;
  for (int k = 0; k < K; k += 16) {
    uint32_t fragment[MT][4];
    HEDDLE_UNROLL
    for (int m = 0; m < MT; ++m) {
      const int outer = m * 16 + matrix % 2 * 8, inner = k + matrix / 2 * 8;
      if constexpr (a_by_k) {
        load_matrices_transposed(fragment[m], a + (inner + row) * a_pitch + outer);
      } else {
        load_matrices(fragment[m], a + (outer + row) * a_pitch + inner);
      }
    }
    HEDDLE_UNROLL
    for (int n = 0; n < NT; n += 2) {
      uint32_t other[4];
      const int outer = n * 8 + matrix / 2 * 8, inner = k + matrix % 2 * 8;
      if constexpr (b_by_k) {
        load_matrices_transposed(other, b + (inner + row) * b_pitch + outer);
      } else {
        load_matrices(other, b + (outer + row) * b_pitch + inner);
      }
      HEDDLE_UNROLL
      for (int m = 0; m < MT; ++m) {
        multiply_fragment(c[m][n], fragment[m], other[0], other[1]);
        multiply_fragment(c[m][n + 1], fragment[m], other[2], other[3]);
      }
    }
  }
}

template <bool a_by_k, bool b_by_k, int MT, int NT>
HEDDLE_DEVICE void multiply_tile(float (&c)[MT][NT][4], const float* a, int a_pitch, const float* b, int b_pitch,
                                 int K) {
  const int lane = tile_lane(), g = lane / 4, t = lane % 4;
  for (int k = 0; k < K; ++k) {
    float x[MT][2];
    HEDDLE_UNROLL
    for (int m = 0; m < MT; ++m) {
      HEDDLE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int row = m * 16 + g + i * 8;
        x[m][i] = a_by_k ? a[k * a_pitch + row] : a[row * a_pitch + k];
      }
    }
    HEDDLE_UNROLL
    for (int n = 0; n < NT; ++n) {
      HEDDLE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int column = n * 8 + 2 * t + j;
        const float y = b_by_k ? b[k * b_pitch + column] : b[column * b_pitch + k];
        HEDDLE_UNROLL
        for (int m = 0; m < MT; ++m) {
          c[m][n][j] = fmaf(x[m][0], y, c[m][n][j]);
          c[m][n][2 + j] = fmaf(x[m][1], y, c[m][n][2 + j]);
        }
      }
    }
  }
}

/// tile[r·pitch + c] = from[r·row_pitch + c] for c < columns (a multiple of 16 ÷ sizeof(X)), r < rows; zeros from
/// `rows_left` and `columns_left` on. By all threads of the block; asynchronous where `wide` (every row is aligned
/// to 16 bytes), else at once.
template <class X>
HEDDLE_DEVICE void copy_tile(X* tile, int pitch, int rows, int columns, const X* from, int64_t row_pitch,
                             int64_t rows_left, int64_t columns_left, bool wide) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(X));
  const int chunks = columns / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += static_cast<int>(blockDim.x)) {
    const int r = i / chunks, c = (i - r * chunks) * kChunk;
    X* to = tile + r * pitch + c;
    int64_t count = r < rows_left ? columns_left - c : 0;
    count = count < 0 ? 0 : count > kChunk ? kChunk : count;
    const X* at = from + (count > 0 ? r * row_pitch + c : 0);
    if (wide) {
      copy_async(to, at, static_cast<int>(count) * static_cast<int>(sizeof(X)));
    } else {
      for (int j = 0; j < kChunk; ++j) to[j] = j < count ? at[j] : X{};
    }
  }
}

}  // namespace heddle::kernels::cuda
