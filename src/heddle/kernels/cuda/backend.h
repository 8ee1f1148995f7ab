// Helpers that the entries of the cuda backend share: which types they take, how they reach operands and scratch.
//
// X is bf16 or f32, A is f32. An entry runs on the host and puts kernels on the stream of the call; operands lie on
// the device and are never read here.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/kernels/cuda/launch.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

using device::KernelCall;
using device::TensorView;

inline TensorView operand(std::span<const TensorView> operands, size_t i) {
  return i < operands.size() ? operands[i] : TensorView{};
}

/// The operand's numbers, which are of type T. InternalError when they are not.
template <class T>
T* numbers(const TensorView& view) {
  if (!view) return nullptr;
  using Plain = std::remove_const_t<T>;
  if constexpr (!std::is_void_v<Plain>) {
    constexpr Dtype expected = std::is_same_v<Plain, Bf16>     ? Dtype::bf16
                               : std::is_same_v<Plain, float>  ? Dtype::f32
                               : std::is_same_v<Plain, double> ? Dtype::f64
                                                               : Dtype::i32;
    HEDDLE_CHECK(view.dtype == expected, "a {} tensor where {} is expected", name_of(view.dtype),
                 name_of(expected));
  }
  return static_cast<T*>(view.data);
}

/// body(X{}) with the device's type for `dtype`.
template <class Body>
void by_type(Dtype dtype, Body body) {
  switch (dtype) {
    case Dtype::bf16: return body(Bf16{});
    case Dtype::f32: return body(float{});
    default: internal_error("a {} tensor on the device", name_of(dtype));
  }
}

/// Takes pieces of scratch, each aligned to 256 bytes; with a null base it only counts.
class Scratch {
 public:
  explicit Scratch(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* at = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

enum class Among { in, out, updates };

/// Support of most ops: operand `index` tells the type, which must be bf16 or f32; weights lie in rows.
template <Among among, size_t index>
Support narrow(const ir::Listing& listing, const ir::Op& op) {
  for (const auto* list : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *list) {
      if (id != ir::none && listing.value(id).layout == ir::Layout::packed) {
        return Support::no("cuda reads and writes row-major weights");
      }
    }
  }
  const auto& list = among == Among::in ? op.in : among == Among::out ? op.out : op.updates;
  const Dtype dtype = listing.value(list.at(index)).dtype;
  if (dtype != Dtype::bf16 && dtype != Dtype::f32) {
    return Support::no(fmt::format("the operand that tells the type is {}, wanted bf16 or f32", name_of(dtype)));
  }
  return Support::yes();
}

inline KernelEntry entry(std::string_view kind, std::string_view name, device::Kernel run,
                         Support (*supports)(const ir::Listing&, const ir::Op&) = narrow<Among::in, 0>,
                         int64_t (*scratch_bytes)(const ir::Listing&, const ir::Op&,
                                                  const ir::RowCounts&) = nullptr) {
  return {.op_kind = kind,
          .backend = "cuda",
          .name = name,
          .supports = supports,
          .scratch_bytes = scratch_bytes,
          .run = run};
}

/// The rows and columns of a value seen as a matrix.
struct MatrixSize {
  MatrixSize(const ir::Listing& listing, ir::ValueId id, const ir::RowCounts& counts)
      : columns(listing.value(id).shape.empty() ? 1 : listing.value(id).shape.back().count),
        rows(columns == 0 ? 0 : listing.elements(id, counts) / columns) {}
  int64_t columns, rows;
};

/// One product c (+)= op(a)·op(b) (+ bias), of both types equal; by the vendor's library where it takes it, else by
/// the kernel of product_kernels.h. `batch`: so many of it, a, b and c each one matrix behind the other.
struct ProductCall {
  TensorView a, b, c;
  bool a_by_k = false, b_by_k = false;
  int64_t M = 0, N = 0, K = 0, batch = 1;
  bool add = false;
  const float* bias = nullptr;
  /// Rows of the product of which this is a piece; 0: it is none. A row must have the bits that it has there.
  int64_t M_in_all = 0;
};
void multiply(const ProductCall& product, void* workspace, void* stream);
/// Workspace that multiply wants; 0 where there is no library.
int64_t product_workspace_bytes();

/// The vendor's library. False: it does not take this product.
bool library_multiply(const ProductCall& product, void* workspace, void* stream);

struct ProductArgs;
/// Products of experts, cut by rows, on Hopper's own instructions. False: the device or this product is not for
/// them.
bool hopper_grouped_rows(const ProductArgs& args, bool b_by_k, void* stream);

/// acc (+)= Σ over rows; parts: f32 [ceil(T ÷ kMapRows), W].
void add_column_parts(const float* parts, int64_t P, int64_t W, float* to, bool add, void* stream);
/// sum = Σ of `count` doubles.
void sum_to(const double* parts, int64_t count, double* sum, void* stream);

const device::RowWork* row_work();

// The families, one a file.
std::vector<KernelEntry> load_entries();
std::vector<KernelEntry> map_entries();
std::vector<KernelEntry> norm_entries();
std::vector<KernelEntry> layer_norm_entries();
std::vector<KernelEntry> hyper_connection_entries();
std::vector<KernelEntry> gated_stream_entries();
std::vector<KernelEntry> dropout_entries();
std::vector<KernelEntry> position_entries();
std::vector<KernelEntry> row_entries();
std::vector<KernelEntry> expert_bias_entries();
std::vector<KernelEntry> router_entries();
std::vector<KernelEntry> capacity_entries();
std::vector<KernelEntry> balance_entries();
std::vector<KernelEntry> loss_entries();
std::vector<KernelEntry> cutlass_entries();
std::vector<KernelEntry> piece_entries();
std::vector<KernelEntry> linear_entries();
std::vector<KernelEntry> expert_way_entries();
std::vector<KernelEntry> library_attention_entries();
std::vector<KernelEntry> attention_entries();
std::vector<KernelEntry> cache_entries();
std::vector<KernelEntry> selection_entries();
std::vector<KernelEntry> compression_entries();
std::vector<KernelEntry> qk_clip_entries();
std::vector<KernelEntry> recurrence_entries();
std::vector<KernelEntry> step_entries();
std::vector<KernelEntry> muon_entries();

}  // namespace heddle::kernels::cuda
