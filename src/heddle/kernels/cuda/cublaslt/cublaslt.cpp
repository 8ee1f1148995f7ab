// Matrix products by cuBLASLt: one, or many of one size as one call.
//
// The library names algorithms once for each shape, those that sum in one order; algorithm_choice.h says which of
// them multiplies. A piece of a product's rows takes the algorithm of the whole, so that a row is summed as it is
// there. The library is asked anew where it doesn't have that one for so few rows.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <tuple>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/cublaslt/algorithm_choice.h"
#include "heddle/kernels/cuda/cublaslt/library.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20, kWorkspaceAlignment = 256;
constexpr uint32_t kAlignment = 16;  // of operands, at least; the library would take 256 for granted

cudaDataType_t type_of(Dtype dtype) { return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

ProductShape shape_of(const ProductCall& call) {
  return {.in = call.a.dtype,
          .out = call.c.dtype,
          .a_by_k = call.a_by_k,
          .b_by_k = call.b_by_k,
          .M = call.M,
          .N = call.N,
          .K = call.K,
          .batch = call.batch};
}

/// A row-major matrix is the transpose of a column-major one: c = a·b becomes cᵀ = bᵀ·aᵀ.
struct Product {
  /// `whole`: the product of which this is a piece, or null.
  Product(const ProductShape& s, const Product* whole) {
    const char* doing = "describing a product";
    check_cublaslt(cublaslt().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), doing);
    // Column-major views: of b the [N, K] lie as K×N, of b by k as N×K; of a likewise.
    const cublasOperation_t first = s.b_by_k ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t second = s.a_by_k ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_cublaslt(cublaslt().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), doing);
    check_cublaslt(cublaslt().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), doing);
    const cudaDataType_t in = type_of(s.in), out = type_of(s.out);
    b_layout = s.b_by_k ? matrix(in, s.N, s.K, s.batch) : matrix(in, s.K, s.N, s.batch);
    a_layout = s.a_by_k ? matrix(in, s.M, s.K, s.batch) : matrix(in, s.K, s.M, s.batch);
    c_layout = matrix(out, s.N, s.M, s.batch);
    if (whole != nullptr && takes_algorithm_of(*whole)) return;
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublaslt(cublaslt().preference_create(&preference), "choosing an algorithm");
    const auto workspace = static_cast<uint64_t>(kWorkspaceBytes);
    cublaslt().preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (const auto of : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      cublaslt().preference_set(preference, of, &kAlignment, sizeof kAlignment);
    }
    // Sums in parts only where the parts are added in a fixed order.
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublaslt().preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> named{};
    int count = 0;
    const cublasStatus_t status = cublaslt().heuristic(handle_of_device(), desc, b_layout, a_layout, c_layout,
                                                       c_layout, preference, kMostAlgorithms, named.data(), &count);
    cublaslt().preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return;
    for (const cublasLtMatmulHeuristicResult_t& one : std::span(named).first(static_cast<size_t>(count))) {
      if (one.state == CUBLAS_STATUS_SUCCESS) algorithms[found++] = one.algo;
    }
    if (found > 0) chosen = AlgorithmChoice::here().of(s, found);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// `rows` × `columns` as the library sees them, column by column; of many, one behind the other.
  static cublasLtMatrixLayout_t matrix(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch) {
    cublasLtMatrixLayout_t layout = nullptr;
    const char* doing = "describing a matrix";
    check_cublaslt(
        cublaslt().layout_create(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
        doing);
    if (batch > 1) {
      const auto count = static_cast<int32_t>(batch);
      const int64_t step = rows * columns;
      check_cublaslt(cublaslt().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                     doing);
      check_cublaslt(cublaslt().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
                     doing);
    }
    return layout;
  }

  bool takes_algorithm_of(const Product& whole) {
    if (whole.found == 0) return true;
    algorithms[0] = whole.algorithms[whole.chosen];
    cublasLtMatmulHeuristicResult_t room{};
    const bool fits = cublaslt().algo_check(handle_of_device(), desc, b_layout, a_layout, c_layout, c_layout,
                                            &algorithms[0], &room) == CUBLAS_STATUS_SUCCESS &&
                      room.workspaceSize <= static_cast<size_t>(kWorkspaceBytes);
    found = fits ? 1 : 0;
    return fits;
  }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, c_layout = nullptr;
  std::array<cublasLtMatmulAlgo_t, kMostAlgorithms> algorithms{};
  int found = 0, chosen = 0;
};

/// Shapes of a run are few but for the last block of rows; each is described once. `rows`: of the whole product.
const Product& described(const ProductShape& shape, int64_t rows) {
  static std::mutex mutex;
  static std::map<std::tuple<int, ProductShape, int64_t>, Product> products;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw SystemError(0, "CUDA: no device is chosen");
  const std::lock_guard lock(mutex);
  const auto find = [&](const ProductShape& of, int64_t all, const Product* whole) -> const Product& {
    return products.try_emplace(std::tuple(device, of, all), of, whole).first->second;
  };
  if (rows == shape.M) return find(shape, rows, nullptr);
  ProductShape whole = shape;
  whole.M = rows;
  return find(shape, rows, &find(whole, rows, nullptr));
}

bool aligned(const TensorView& view, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0 && pitch * size_of(view.dtype) % kAlignment == 0;
}

}  // namespace

int64_t product_workspace_bytes() { return kWorkspaceBytes + kWorkspaceAlignment; }

bool library_multiply(const ProductCall& call, void* workspace, void* stream) {
  if (call.bias != nullptr || cublaslt().unwanted) return false;
  if (!cublaslt().there) {
    config_error("device.backend \"cuda\": {}; HEDDLE_CUBLASLT=0 goes without, two to three times slower",
                 cublaslt().text);
  }
  if (!aligned(call.a, call.a_by_k ? call.M : call.K) || !aligned(call.b, call.b_by_k ? call.N : call.K) ||
      !aligned(call.c, call.N)) {
    return false;
  }
  // f32 operands give only f32 results: the combinations of types that the library takes are few.
  if (call.a.dtype == Dtype::f32 && call.c.dtype != Dtype::f32) return false;
  const ProductShape shape = shape_of(call);
  const int64_t rows = call.M_in_all == 0 ? call.M : call.M_in_all;
  const Product& product = described(shape, rows);
  if (product.found == 0) return false;
  const float one = 1, beta = call.add ? 1 : 0;
  const auto room = (reinterpret_cast<uintptr_t>(workspace) + kWorkspaceAlignment - 1) / kWorkspaceAlignment;
  const auto run = [&](int algorithm) {
    return cublaslt().matmul(handle_of_device(), product.desc, &one, call.b.data, product.b_layout, call.a.data,
                             product.a_layout, &beta, call.c.data, product.c_layout, call.c.data, product.c_layout,
                             &product.algorithms[algorithm], reinterpret_cast<void*>(room * kWorkspaceAlignment),
                             static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(stream));
  };
  if (!call.add && rows == call.M) {
    AlgorithmChoice::here().measure(
        shape, product.found, [&](int i) { return run(i) == CUBLAS_STATUS_SUCCESS; }, stream);
  }
  check_cublaslt(run(product.chosen), "multiplying");
  return true;
}

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_product_library() { return {cuda::cublaslt().there, cuda::cublaslt().text}; }
}  // namespace heddle::kernels
