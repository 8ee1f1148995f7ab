// The engines avx512 (fp32 multiply-adds of operands of either type) and avx512-widen (the same of bf16 operands,
// whose panels stay bf16 and are widened in registers).
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__x86_64__)
#define HEDDLE_512_FEATURES "avx512f,avx512bw,avx512dq,avx512vl"
#include "heddle/kernels/host/gemm/gemm_avx512_pieces-inl.h"

namespace heddle::kernels::host::avx512_engine {

int64_t scratch_bytes(Form form, int64_t rows, int64_t columns, int64_t depth) {
  switch (form) {
    case Form::floats: return PieceScratch<Form::floats>::bytes(rows, columns, depth);
    case Form::pairs: return PieceScratch<Form::pairs>::bytes(rows, columns, depth);
    default: return PieceScratch<Form::widened>::bytes(rows, columns, depth);
  }
}
int64_t panel_bytes(Form form, int64_t depth, int64_t columns) {
  return form == Form::floats ? panel_bytes_of<Form::floats>(depth, columns)
                              : panel_bytes_of<Form::widened>(depth, columns);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void product(Form form, const ProductPiece& piece) {
  form == Form::floats ? run_product<Form::floats>(piece) : run_product<Form::widened>(piece);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void wgrad(Form form, const WgradPiece& piece, std::byte* scratch) {
  form == Form::floats ? run_wgrad<Form::floats>(piece, scratch) : run_wgrad<Form::widened>(piece, scratch);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void pack(Form form, const PackPiece& piece) {
  form == Form::floats ? run_pack<Form::floats>(piece) : run_pack<Form::widened>(piece);
}

}  // namespace heddle::kernels::host::avx512_engine
#else
namespace heddle::kernels::host::avx512_engine {
int64_t scratch_bytes(Form, int64_t, int64_t, int64_t) { internal_error("AVX-512 on another processor"); }
int64_t panel_bytes(Form, int64_t, int64_t) { internal_error("AVX-512 on another processor"); }
void product(Form, const ProductPiece&) { internal_error("AVX-512 on another processor"); }
void wgrad(Form, const WgradPiece&, std::byte*) { internal_error("AVX-512 on another processor"); }
void pack(Form, const PackPiece&) { internal_error("AVX-512 on another processor"); }
}  // namespace heddle::kernels::host::avx512_engine
#endif
