// cuBLASLt, found when first needed. Where it is not found a run ends with one line, unless HEDDLE_CUBLASLT=0 says
// that the kernels of product_kernels.h, two to three times slower, are to multiply.
#pragma once

#include <cublasLt.h>

#include <string>

namespace heddle::kernels::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  bool there = false, unwanted = false;
  std::string release;  // "13.1.0"
  std::string text;     // its version and file, or what is missing
};

/// Looks for it anew.
CublasLt open_cublaslt();
/// The library, as found when it was first needed.
const CublasLt& cublaslt();

/// SystemError that says what was being done.
void check_cublaslt(cublasStatus_t status, const char* doing);

/// The handle of the device that this thread has chosen; made once for each.
cublasLtHandle_t handle_of_device();

}  // namespace heddle::kernels::cuda
