// Matrix products by cuBLASLt, found when first needed. Where it is not found a run ends with one line, unless
// HEDDLE_CUBLASLT=0 says that the kernels of product_kernels.h, two to three times slower, are to multiply.
//
// Algorithms are chosen once for each shape, among those that sum in one order. A piece of a product's rows takes
// the algorithm of the whole, so that a row is summed as it is there; where the library doesn't have it for so few
// rows it is asked anew.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "heddle/kernels/cuda/backend.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20, kWorkspaceAlignment = 256;
constexpr uint32_t kAlignment = 16;  // of operands, at least; the library would take 256 for granted

struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  bool there = false, unwanted = false;
  std::string text;  // its version and file, or what is missing
};

const Library& library() {
  static const Library found = [] {
    Library l;
    if (const char* off = std::getenv("HEDDLE_CUBLASLT"); off != nullptr && std::string_view(off) == "0") {
      l.unwanted = true;
      l.text = "left out: HEDDLE_CUBLASLT is 0";
      return l;
    }
    // What the user names goes before what the loader finds, and that before where it was when this was built.
    const char* named = std::getenv("HEDDLE_CUBLASLT_PATH");
    void* handle = nullptr;
    for (const char* name :
         {named != nullptr ? named : "", "libcublasLt.so.13", "libcublasLt.so.12", HEDDLE_CUBLASLT_PATH}) {
      if (handle == nullptr && *name != '\0') handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) {
      l.text = "neither libcublasLt.so.13 nor .12 is found (HEDDLE_CUBLASLT_PATH names a file)";
      return l;
    }
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      all = all && function != nullptr;
      if (function == nullptr) l.text = fmt::format("the cuBLASLt of this machine has no {}", name);
    };
    find(l.create, "cublasLtCreate");
    find(l.desc_create, "cublasLtMatmulDescCreate");
    find(l.desc_destroy, "cublasLtMatmulDescDestroy");
    find(l.desc_set, "cublasLtMatmulDescSetAttribute");
    find(l.layout_create, "cublasLtMatrixLayoutCreate");
    find(l.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(l.preference_create, "cublasLtMatmulPreferenceCreate");
    find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(l.algo_check, "cublasLtMatmulAlgoCheck");
    find(l.matmul, "cublasLtMatmul");
    find(l.version, "cublasLtGetVersion");
    l.there = all;
    if (Dl_info at{}; all && dladdr(reinterpret_cast<void*>(l.matmul), &at) != 0) {
      const size_t version = l.version();
      l.text =
          fmt::format("cuBLASLt {}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100, at.dli_fname);
    }
    return l;
  }();
  return found;
}

void check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw SystemError(static_cast<int>(status),
                    fmt::format("cuBLASLt: {}: status {}", doing, static_cast<int>(status)));
}

cublasLtHandle_t handle_of_device() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw SystemError(0, "CUDA: no device is chosen");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) check(library().create(&handle), "making a handle");
  return handle;
}

cudaDataType_t type_of(Dtype dtype) { return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// A row-major matrix is the transpose of a column-major one: c = a·b becomes cᵀ = bᵀ·aᵀ.
struct Product {
  /// `whole`: the product of which this is a piece, or null.
  Product(const ProductCall& call, const Product* whole) {
    check(library().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    // Column-major views: of b the [N, K] lie as K×N, of b by k as N×K; of a likewise.
    const cublasOperation_t first = call.b_by_k ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t second = call.a_by_k ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(library().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "describing a product");
    check(library().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "describing a product");
    const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
    const cudaDataType_t in = type_of(call.a.dtype), out = type_of(call.c.dtype);
    const bool b = call.b_by_k, a = call.a_by_k;
    check(library().layout_create(&b_layout, in, size(b ? call.N : call.K), size(b ? call.K : call.N),
                                  b ? call.N : call.K),
          "describing a matrix");
    check(library().layout_create(&a_layout, in, size(a ? call.M : call.K), size(a ? call.K : call.M),
                                  a ? call.M : call.K),
          "describing a matrix");
    check(library().layout_create(&c_layout, out, size(call.N), size(call.M), call.N), "describing a matrix");
    if (whole != nullptr) {
      algorithm = whole->algorithm;
      usable = whole->usable;
      cublasLtMatmulHeuristicResult_t room{};
      if (!usable || (library().algo_check(handle_of_device(), desc, b_layout, a_layout, c_layout, c_layout,
                                           &algorithm, &room) == CUBLAS_STATUS_SUCCESS &&
                      room.workspaceSize <= static_cast<size_t>(kWorkspaceBytes))) {
        return;
      }
    }
    cublasLtMatmulPreference_t preference = nullptr;
    check(library().preference_create(&preference), "choosing an algorithm");
    const auto workspace = static_cast<uint64_t>(kWorkspaceBytes);
    library().preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (const auto of : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      library().preference_set(preference, of, &kAlignment, sizeof kAlignment);
    }
    // Sums in parts only where the parts are added in a fixed order.
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    library().preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = library().heuristic(handle_of_device(), desc, b_layout, a_layout, c_layout,
                                                      c_layout, preference, 1, &best, &found);
    library().preference_destroy(preference);
    usable = status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    algorithm = best.algo;
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, c_layout = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool usable = false;
};

/// Shapes of a run are few but for the last block of rows; each is described once.
const Product& described(const ProductCall& call) {
  static std::mutex mutex;
  using Key = std::tuple<int, Dtype, Dtype, bool, bool, int64_t, int64_t, int64_t, int64_t>;
  static std::map<Key, Product> products;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw SystemError(0, "CUDA: no device is chosen");
  const std::lock_guard lock(mutex);
  const auto find = [&](int64_t M, int64_t of, const Product* whole) -> const Product& {
    ProductCall one = call;
    one.M = M;
    const Key key{device, call.a.dtype, call.c.dtype, call.a_by_k, call.b_by_k, M, call.N, call.K, of};
    return products.try_emplace(key, one, whole).first->second;
  };
  const int64_t of = call.M_in_all == call.M ? 0 : call.M_in_all;
  return find(call.M, of, of == 0 ? nullptr : &find(of, 0, nullptr));
}

bool aligned(const TensorView& view, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0 && pitch * size_of(view.dtype) % kAlignment == 0;
}

}  // namespace

int64_t product_workspace_bytes() { return kWorkspaceBytes + kWorkspaceAlignment; }

bool library_multiply(const ProductCall& call, void* workspace, void* stream) {
  if (call.bias != nullptr || library().unwanted) return false;
  if (!library().there) {
    config_error("device.backend \"cuda\": {}; HEDDLE_CUBLASLT=0 goes without, two to three times slower",
                 library().text);
  }
  if (!aligned(call.a, call.a_by_k ? call.M : call.K) || !aligned(call.b, call.b_by_k ? call.N : call.K) ||
      !aligned(call.c, call.N)) {
    return false;
  }
  // Of f32 operands only f32 results: the combinations of types that the library takes are few.
  if (call.a.dtype == Dtype::f32 && call.c.dtype != Dtype::f32) return false;
  const Product& product = described(call);
  if (!product.usable) return false;
  const float one = 1, beta = call.add ? 1 : 0;
  const auto room = (reinterpret_cast<uintptr_t>(workspace) + kWorkspaceAlignment - 1) / kWorkspaceAlignment;
  check(library().matmul(handle_of_device(), product.desc, &one, call.b.data, product.b_layout, call.a.data,
                         product.a_layout, &beta, call.c.data, product.c_layout, call.c.data, product.c_layout,
                         &product.algorithm, reinterpret_cast<void*>(room * kWorkspaceAlignment),
                         static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(stream)),
        "multiplying");
  return true;
}

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_product_library() { return {cuda::library().there, cuda::library().text}; }
}  // namespace heddle::kernels
