// The engine avx512-bf16: bf16 dot products of pairs.
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__x86_64__)
#define HEDDLE_512_FEATURES "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"
#define HEDDLE_512_HAS_BF16
#include "heddle/kernels/host/gemm/gemm_avx512_pieces-inl.h"

namespace heddle::kernels::host::avx512_bf16_engine {

using avx512_engine::Form;

int64_t panel_bytes(int64_t depth, int64_t columns) {
  return avx512_engine::panel_bytes_of<Form::pairs>(depth, columns);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void product(const ProductPiece& piece) {
  avx512_engine::run_product<Form::pairs>(piece);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void wgrad(const WgradPiece& piece, std::byte* scratch) {
  avx512_engine::run_wgrad<Form::pairs>(piece, scratch);
}
[[gnu::target(HEDDLE_512_FEATURES)]] void pack(const PackPiece& piece) {
  avx512_engine::run_pack<Form::pairs>(piece);
}

}  // namespace heddle::kernels::host::avx512_bf16_engine
#else
namespace heddle::kernels::host::avx512_bf16_engine {
int64_t panel_bytes(int64_t, int64_t) { internal_error("AVX512_BF16 on another processor"); }
void product(const ProductPiece&) { internal_error("AVX512_BF16 on another processor"); }
void wgrad(const WgradPiece&, std::byte*) { internal_error("AVX512_BF16 on another processor"); }
void pack(const PackPiece&) { internal_error("AVX512_BF16 on another processor"); }
}  // namespace heddle::kernels::host::avx512_bf16_engine
#endif
