// Pieces of the AVX-512 engines: see gemm_avx512_block-inl.h for the forms and for how this file is included.
//
// Order of a product's piece: runs of at most kRunSteps steps; within a run, panels of B; within these, strips of
// A. So the panel's run stays in the first-level cache while the strips stream from the second; both were measured
// to reach the units' full rate there. Of a packed weight panels are read in place, and so is A where its numbers
// are the form's words. With more than one run, sums wait in fp32 blocks, exactly.
//
// A weight gradient's piece is the same product of dyᵀ and x over runs of the rows, with both packed: dy in strips,
// x in panels.
//
// Strips are as equal as whole rows allow, so that a few rows over cost no more than themselves.
#pragma once

#include <algorithm>

#include "heddle/kernels/host/gemm/gemm_avx512_pack-inl.h"

namespace heddle::kernels::host::avx512_engine {
namespace {

constexpr int64_t kRunSteps = 256;
/// Words from strip to strip of packed A over a run of so many steps. They are not a multiple of 4 KiB: else the
/// strips' lines would fall on the same few sets of the cache while all are written side by side.
template <Form kForm>
constexpr int64_t strip_words(int64_t run) {
  return (kForm == Form::widened ? 2 : 1) * run * kStripRows + 16;
}
static_assert(kMostDeepWgradRows <= kMostPieceRows && kMostWgradColumns <= kMostPieceColumns);

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Strips of up to 12 rows, as equal as can be.
struct Strips {
  int64_t rows = 0, count = 0;
  explicit Strips(int64_t all) : rows(all), count(ceil_div(all, kStripRows)) {}
  int64_t begin(int64_t strip) const { return rows * strip / count; }
  int64_t size(int64_t strip) const { return begin(strip + 1) - begin(strip); }
};

/// Steps of a run, as equal as vectors of 16 allow.
constexpr int64_t run_steps(int64_t steps) {
  return ceil_div(ceil_div(steps, ceil_div(steps, kRunSteps)), 16) * 16;
}

template <Form kForm>
constexpr int64_t steps_of(int64_t depth) {
  return ceil_div(depth, depth_of_step(kForm));
}

/// The scratch of a piece: a copied panel, A in strips, the last numbers of odd rows, and sums that wait.
template <Form kForm>
struct PieceScratch {
  uint32_t *right, *left, *tails;
  float* sums;
  PieceScratch(std::byte* scratch, const Strips& strips, int64_t run)
      : right(reinterpret_cast<uint32_t*>(scratch)),
        left(right + kPanelColumns * run),
        tails(left + strips.count * strip_words<kForm>(run)),
        sums(reinterpret_cast<float*>(tails + strips.count * 16)) {}

  /// Bytes for pieces of up to rows × columns over up to `depth`.
  static int64_t bytes(int64_t rows, int64_t columns, int64_t depth) {
    const Strips strips(std::min(rows, kMostPieceRows));
    const int64_t steps = steps_of<kForm>(depth), run = std::min(ceil_div(steps, 16) * 16, kRunSteps);
    const int64_t panels = ceil_div(std::min(columns, kMostPieceColumns), kPanelColumns);
    const int64_t sums = steps > kRunSteps ? strips.count * panels * kBlockWords : 0;
    return 4 * (kPanelColumns * run + strips.count * (strip_words<kForm>(run) + 16) + sums);
  }
};

template <Form kForm>
int64_t panel_bytes_of(int64_t depth, int64_t columns) {
  return ceil_div(columns, kPanelColumns) * steps_of<kForm>(depth) * kPanelColumns * 4;
}

/// The last numbers of odd rows of bf16, as pairs with zero, [strip][12].
HEDDLE_512 void pack_tails(const Rows& a, const Strips& strips, int64_t depth, uint32_t* out) {
  const auto* const last = static_cast<const uint16_t*>(a.data) + depth - 1;
  for (int64_t s = 0; s < strips.count; ++s) {
    for (int64_t r = 0; r < strips.size(s); ++r) out[s * kStripRows + r] = last[(strips.begin(s) + r) * a.stride];
  }
}

/// Strips of A over a run, in fp32.
HEDDLE_512 void pack_left(const Rows& a, const Strips& strips, int64_t depth, int64_t deep, int64_t strip_words,
                          uint32_t* out) {
  for (int64_t s = 0; s < strips.count; ++s, out += strip_words) {
    const int64_t at = strips.begin(s) * a.stride + depth;
    if (a.dtype == Dtype::bf16) {
      strip_turned(static_cast<const uint16_t*>(a.data) + at, a.stride, strips.size(s), deep, out);
    } else {
      strip_turned(static_cast<const float*>(a.data) + at, a.stride, strips.size(s), deep, out);
    }
  }
}

/// Asks for the lines of some columns of a row.
HEDDLE_512 void fetch_row(const Rows& m, int64_t row, int64_t column_begin, int64_t column_end) {
  const auto* const first = static_cast<const std::byte*>(m.data) + row * m.stride * size_of(m.dtype);
  for (int64_t at = column_begin * size_of(m.dtype); at < column_end * size_of(m.dtype); at += 64) {
    _mm_prefetch(first + at, _MM_HINT_T0);
  }
}

template <Form kForm>
HEDDLE_512 void run_product(const ProductPiece& piece) {
  constexpr int64_t kDeep = depth_of_step(kForm);
  const Strips strips(piece.rows);
  const int64_t steps = steps_of<kForm>(piece.depth), run = run_steps(steps);
  const PieceScratch<kForm> own(piece.scratch, strips, run);
  const int64_t first_panel = piece.column_begin / kPanelColumns;
  const int64_t panels = ceil_div(piece.column_end, kPanelColumns) - first_panel;
  const int64_t a_size = size_of(piece.a.dtype), c_size = size_of(piece.c.dtype);
  const bool in_place = kForm == Form::pairs || (kForm == Form::floats && piece.a.dtype == Dtype::f32);
  const bool tail = kForm == Form::pairs && piece.depth % kDeep != 0;
  if (tail) pack_tails(piece.a, strips, piece.depth, own.tails);

  for (int64_t step = 0; step < steps; step += run) {
    const int64_t run_end = std::min(step + run, steps);
    const int64_t depth = step * kDeep, depth_end = std::min(run_end * kDeep, piece.depth);
    const bool last = run_end == steps;
    if (!in_place) pack_left(piece.a, strips, depth, depth_end - depth, strip_words<kForm>(run), own.left);
    BlockCall call;
    call.steps = run_end - step - (last && tail);
    call.load = step > 0;
    call.store = !last;
    call.a_stride = piece.a.stride * a_size;
    call.c_stride = piece.c.stride * c_size;
    call.narrow = piece.c.dtype == Dtype::bf16;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t column = (first_panel + p) * kPanelColumns;
      call.columns = std::min(piece.column_end - column, kPanelColumns);
      if (piece.panels) {
        call.b = reinterpret_cast<const uint32_t*>(piece.panels) + (first_panel + p) * steps * kPanelColumns +
                 step * kPanelColumns;
      } else {
        pack_panel<kForm>(piece.b, piece.b_transposed, depth, depth_end, column, call.columns, own.right);
        call.b = own.right;
      }
      call.bias = piece.bias ? piece.bias + column : nullptr;
      const bool more_panels = piece.panels && p + 1 < panels;
      for (int64_t s = 0; s < strips.count; ++s) {
        const int64_t row = strips.begin(s);
        // The next panel comes from far: the first two strips ask for it, a line a step.
        const bool fetch = more_panels && s < 2;
        call.fetch = fetch ? call.b + steps * kPanelColumns + s * call.steps * 16 : call.b;
        call.fetch_stride = fetch ? 16 : 0;
        if (in_place && p == 0 && s + 1 < strips.count) {  // the next rows of A
          for (int64_t r = 0; r < strips.size(s + 1); ++r) {
            fetch_row(piece.a, strips.begin(s + 1) + r, depth, depth_end);
          }
        }
        call.sums = own.sums + (s * panels + p) * kBlockWords;
        call.c = static_cast<std::byte*>(piece.c.data) + row * call.c_stride + column * c_size;
        if (in_place) {
          call.a = static_cast<const std::byte*>(piece.a.data) + row * call.a_stride + depth * a_size;
          call.tail = last && tail ? own.tails + s * kStripRows : nullptr;
          if constexpr (kForm != Form::widened) multiply_rows<kForm, true>(strips.size(s), call);
        } else {
          call.a = reinterpret_cast<const std::byte*>(own.left + s * strip_words<kForm>(run));
          if constexpr (kForm != Form::pairs) multiply_rows<kForm, false>(strips.size(s), call);
        }
      }
    }
  }
}

template <Form kForm>
HEDDLE_512 void run_wgrad(const WgradPiece& piece, std::byte* scratch) {
  constexpr int64_t kDeep = depth_of_step(kForm);
  constexpr int64_t kRowsAhead = 24;    // of dy and x, fetched before they are packed
  constexpr int64_t kRowsTogether = 8;  // of dy, so that the lines that strips share are still near
  constexpr int64_t kRowWords = kForm == Form::pairs ? kStripRows / 2 : kStripRows;  // of a strip
  if (piece.rows == 0) {
    for (int64_t n = piece.n_begin; piece.overwrite && n < piece.n_end; ++n) {
      std::fill(piece.dw + n * piece.dw_stride + piece.k_begin, piece.dw + n * piece.dw_stride + piece.k_end, 0.0f);
    }
    return;
  }
  const int64_t steps = steps_of<kForm>(piece.rows), run = run_steps(steps);
  const int64_t panels = ceil_div(piece.k_end - piece.k_begin, kPanelColumns);
  const Strips strips(piece.n_end - piece.n_begin);
  const PieceScratch<kForm> own(scratch, strips, run);
  for (int64_t step = 0; step < steps; step += run) {
    const int64_t run_end = std::min(step + run, steps);
    const int64_t t_begin = step * kDeep, t_end = std::min(run_end * kDeep, piece.rows);
    for (int64_t t = t_begin; t < t_end; t += kRowsTogether) {
      // Rows of both operands that are packed soon, from wherever they are.
      const int64_t ahead = std::min(t + kRowsAhead, piece.rows);
      for (int64_t row = ahead; row < std::min(ahead + kRowsTogether, piece.rows); ++row) {
        fetch_row(piece.dy, row, piece.n_begin, piece.n_end);
        fetch_row(piece.x, row, piece.k_begin, piece.k_begin + kPanelColumns);
      }
      for (int64_t s = 0; s < strips.count; ++s) {
        uint32_t* const to = own.left + s * strip_words<kForm>(run) + (t - t_begin) * kRowWords;
        const int64_t at = t * piece.dy.stride + piece.n_begin + strips.begin(s);
        const int64_t deep = std::min(t_end - t, kRowsTogether), wide = strips.size(s);
        if (piece.dy.dtype == Dtype::bf16) {
          strip_down<kForm>(static_cast<const uint16_t*>(piece.dy.data) + at, piece.dy.stride, deep, wide, to);
        } else if constexpr (kForm == Form::floats) {
          strip_down<kForm>(static_cast<const float*>(piece.dy.data) + at, piece.dy.stride, deep, wide, to);
        }
      }
    }
    BlockCall call;
    call.steps = run_end - step;
    call.b = own.right;
    call.load = step > 0;
    call.store = run_end != steps;
    call.add = !piece.overwrite;
    call.c_stride = piece.dw_stride * 4;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t k = piece.k_begin + p * kPanelColumns;
      call.columns = std::min(piece.k_end - k, kPanelColumns);
      pack_panel<kForm>(piece.x, false, t_begin, t_end, k, call.columns, own.right);
      for (int64_t s = 0; s < strips.count; ++s) {
        call.a = reinterpret_cast<const std::byte*>(own.left + s * strip_words<kForm>(run));
        call.sums = own.sums + (s * panels + p) * kBlockWords;
        call.c = reinterpret_cast<std::byte*>(piece.dw + (piece.n_begin + strips.begin(s)) * piece.dw_stride + k);
        multiply_rows<kForm, false>(strips.size(s), call);
      }
    }
  }
}

template <Form kForm>
HEDDLE_512 void run_pack(const PackPiece& piece) {
  for (int64_t column = piece.column_begin; column < piece.column_end; column += kPanelColumns) {
    auto* const to = reinterpret_cast<uint32_t*>(piece.panels) + column * steps_of<kForm>(piece.depth);
    pack_panel<kForm>(piece.b, piece.b_transposed, 0, piece.depth, column,
                      std::min(piece.column_end - column, kPanelColumns), to);
  }
}

}  // namespace
}  // namespace heddle::kernels::host::avx512_engine
