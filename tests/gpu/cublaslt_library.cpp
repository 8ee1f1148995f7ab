#include "tests/gpu/cublaslt_library.h"

#include <cublasLt.h>

#include <algorithm>

#include "heddle/base/dtype.h"

namespace {

using heddle::lt::Library;

constexpr size_t kWorkspaceAlignment = 256, kOperandAlignment = 16;

struct Desc {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, pitch, step = 0;
  int32_t batch = 1;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t schemes = ~0u;
};

template <class Own, class Handle>
Own& own(Handle handle) {
  return *reinterpret_cast<Own*>(handle);
}
template <class Own, class Handle>
const Own& as(Handle handle) {
  return *reinterpret_cast<const Own*>(handle);
}

Library& library() {
  static Library of_this_process;
  return of_this_process;
}

/// m × n of k, or m = -1: the matrices don't fit.
struct Sizes {
  int64_t m = -1, n = 0, k = 0;
};
Sizes sizes_of(const Desc& desc, const Layout& a, const Layout& b, const Layout& c) {
  const bool ta = desc.a == CUBLAS_OP_T, tb = desc.b == CUBLAS_OP_T;
  const int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const int64_t kb = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
  const bool fit = k == kb && c.rows == m && c.columns == n && a.batch == b.batch && a.batch == c.batch;
  for (const Layout* of : {&a, &b, &c}) {
    const bool apart = of->batch == 1 || of->step >= of->pitch * of->columns;
    if (of->pitch < of->rows || !apart) return {};
  }
  return fit ? Sizes{m, n, k} : Sizes{};
}

float number(const void* data, cudaDataType_t type, int64_t at) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[at]
                            : static_cast<float>(static_cast<const heddle::bf16*>(data)[at]);
}

int64_t place(int64_t row, int64_t column, const Layout& of, int32_t batch) {
  return batch * of.step + column * of.pitch + row;
}

}  // namespace

extern "C" {

Library* heddle_test_cublaslt() { return &library(); }

size_t cublasLtGetVersion() { return library().version != 0 ? library().version : CUBLAS_VER_MAJOR * 10000 + 100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int any;
  *handle = reinterpret_cast<cublasLtHandle_t>(&any);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &own<Desc>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto operation = *static_cast<const cublasOperation_t*>(value);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) own<Desc>(desc).a = operation;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) own<Desc>(desc).b = operation;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), pitch});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &own<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  Layout& of = own<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t)) {
    of.batch = *static_cast<const int32_t*>(value);
  } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(int64_t)) {
    of.step = *static_cast<const int64_t*>(value);
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &own<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    own<Preference>(preference).workspace = *static_cast<const uint64_t*>(value);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    own<Preference>(preference).schemes = *static_cast<const uint32_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t found[], int* count) {
  *count = 0;
  const Preference& wish = as<Preference>(preference);
  // Atomic sums would be in any order.
  const bool ordered = (wish.schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
  if (sizes_of(as<Desc>(desc), as<Layout>(a), as<Layout>(b), as<Layout>(c)).m < 0 || c != d || !ordered)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < std::min(wanted, library().algorithms); ++i) {
    found[i] = {};
    found[i].algo.data[0] = static_cast<uint64_t>(i) + 1;
    found[i].state = CUBLAS_STATUS_SUCCESS;
    found[i].workspaceSize = wish.workspace;
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t a_layout, const void* B, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* C, cublasLtMatrixLayout_t c_layout, void* D,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t, cudaStream_t) {
  const Layout &a = as<Layout>(a_layout), &b = as<Layout>(b_layout), &c = as<Layout>(c_layout);
  const Desc& of = as<Desc>(desc);
  const Sizes s = sizes_of(of, a, b, c);
  const auto at = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  if (s.m < 0 || C != D || c_layout != d_layout || at(workspace) % kWorkspaceAlignment != 0 ||
      at(A) % kOperandAlignment != 0 || at(B) % kOperandAlignment != 0 || at(D) % kOperandAlignment != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int algorithm = static_cast<int>(algo->data[0]) - 1;
  if (algorithm == library().refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  for (int32_t e = 0; e < a.batch; ++e) {
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t m = 0; m < s.m; ++m) {
        float sum = 0;
        for (int64_t i = 0; i < s.k; ++i) {
          const int64_t k = (i + algorithm * (s.k / 3 + 1)) % s.k;
          sum += number(A, a.type, of.a == CUBLAS_OP_T ? place(k, m, a, e) : place(m, k, a, e)) *
                 number(B, b.type, of.b == CUBLAS_OP_T ? place(n, k, b, e) : place(k, n, b, e));
        }
        const int64_t to = place(m, n, c, e);
        const float value = scale * sum + (keep == 0 ? 0 : keep * number(C, c.type, to));
        if (c.type == CUDA_R_32F) {
          static_cast<float*>(D)[to] = value;
        } else {
          static_cast<heddle::bf16*>(D)[to] = heddle::bf16(value);
        }
      }
    }
  }
  ++library().products;
  library().batch = a.batch;
  library().algorithm = algorithm;
  library().clock_ms += library().ms[algorithm];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t* room) {
  room->workspaceSize = 0;
  return CUBLAS_STATUS_SUCCESS;
}
}  // extern "C"
