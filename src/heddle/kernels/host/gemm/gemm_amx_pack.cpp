// The amx engines: packing of weights, rows into both of a weight's blockings.
//
// Rows are read once, 32 × 32 numbers at a time. Each makes a step of a forward panel (rows are columns of B) and
// one of a dgrad panel (rows are its depth). The steps are written past the caches where these can't hold them
// until they are read, in the next step of training. An ordinary store fetches first the line that it overwrites.
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__x86_64__)
#include "heddle/kernels/host/gemm/gemm_amx_panels.h"

namespace heddle::kernels::host::amx {
namespace {

/// Lines of the rows that come two units later. Near the end of the weight less is there, and it is not asked for.
HEDDLE_AMX void ask_for_rows(const PackRowsPiece& piece, int64_t n, int64_t k) {
  for (k += 2 * kStep; k >= piece.k; k -= piece.k) n += kStep;
  const int64_t size = size_of(piece.w.dtype), bytes = smaller(piece.k - k, kStep) * size;
  for (int64_t row = n; row < smaller(n + kStep, piece.n_end); ++row) {
    const char* const line = static_cast<const char*>(piece.w.data) + (row * piece.w.stride + k) * size;
    for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(line + at, _MM_HINT_T0);
  }
}

template <Numbers kNumbers>
HEDDLE_AMX void write_step(const uint16_t* step, bool past_cache, uint16_t* to) {
  for (int64_t i = 0; i < step_elements(kNumbers); i += kStep) {
    const __m512i line = _mm512_load_si512(step + i);
    if (past_cache) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), line);
    } else {
      _mm512_store_si512(to + i, line);
    }
  }
}

template <Numbers kNumbers>
HEDDLE_AMX void run_pack(const PackRowsPiece& piece) {
  constexpr int64_t kElements = step_elements(kNumbers);
  const int64_t forward_panel = panel_elements(kNumbers, piece.k), dgrad_panel = panel_elements(kNumbers, piece.n);
  auto* const forward = reinterpret_cast<uint16_t*>(piece.panels);
  auto* const dgrad = forward + ceil_div(piece.n, kBlock) * forward_panel;
  alignas(64) uint16_t step[kElements];
  for (int64_t n = piece.n_begin; n < piece.n_end; n += kBlock) {
    for (int64_t k = 0; k < piece.k; k += kBlock) {
      ask_for_rows(piece, n, k);
      pack_panel<kNumbers>(piece.w, true, k, smaller(k + kStep, piece.k), n, piece.n_end, step);
      write_step<kNumbers>(step, piece.past_cache, forward + n / kBlock * forward_panel + k / kStep * kElements);
      pack_panel<kNumbers>(piece.w, false, n, smaller(n + kStep, piece.n_end), k, piece.k, step);
      write_step<kNumbers>(step, piece.past_cache, dgrad + k / kBlock * dgrad_panel + n / kStep * kElements);
    }
  }
  _mm_sfence();
}

}  // namespace

int64_t panel_bytes(bool split, int64_t depth, int64_t columns) {
  return ceil_div(columns, kBlock) * panel_elements(split ? Numbers::split_fp32 : Numbers::bf16, depth) * 2;
}

HEDDLE_AMX_TARGET void pack(bool split, const PackRowsPiece& piece) {
  split ? run_pack<Numbers::split_fp32>(piece) : run_pack<Numbers::bf16>(piece);
}

}  // namespace heddle::kernels::host::amx
#else
namespace heddle::kernels::host::amx {
int64_t panel_bytes(bool, int64_t, int64_t) { internal_error("amx on another processor"); }
void pack(bool, const PackRowsPiece&) { internal_error("amx on another processor"); }
}  // namespace heddle::kernels::host::amx
#endif
