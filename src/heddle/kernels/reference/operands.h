// Reads and writes of every reference kernel: operands are widened to the accumulation type A on entry, all
// arithmetic is in A, and a result is rounded once on exit. A kernel is a template over A, float or double.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::reference {

using device::KernelCall;
using device::TensorView;

/// Operand i, or a null view where it is absent or not listed.
inline TensorView operand(std::span<const TensorView> operands, size_t i) {
  return i < operands.size() ? operands[i] : TensorView{};
}

/// A floating tensor to read, as A. Costs no copy when the tensor has type A already.
template <class A>
class Input {
 public:
  explicit Input(const TensorView& view) : present_(static_cast<bool>(view)) {
    if (!present_) return;
    switch (view.dtype) {
      case Dtype::f64: widen<double>(view); break;
      case Dtype::f32: widen<float>(view); break;
      case Dtype::bf16: widen<bf16>(view); break;
      default: internal_error("a {} tensor where numbers are expected", name_of(view.dtype));
    }
  }
  explicit operator bool() const { return present_; }
  const A& operator[](int64_t i) const { return data_[i]; }
  const A* at(int64_t i) const { return data_ + i; }

 private:
  template <class T>
  void widen(const TensorView& view) {
    if constexpr (std::is_same_v<T, A>) {
      data_ = view.as<const A>();
    } else {
      const int64_t count = view.elements();
      owned_.reset(new A[static_cast<size_t>(count)]);
      for (int64_t i = 0; i < count; ++i) owned_[i] = static_cast<A>(view.as<const T>()[i]);
      data_ = owned_.get();
    }
  }
  bool present_;
  std::unique_ptr<A[]> owned_;
  const A* data_ = nullptr;
};

/// A floating tensor to write, as A; rounded to the tensor's type when this object dies. Not initialised.
template <class A>
class Output {
 public:
  explicit Output(const TensorView& view) : view_(view) {
    if (view.dtype == dtype_of<A>) {
      data_ = view.as<A>();
    } else {
      owned_.reset(new A[static_cast<size_t>(view.elements())]);
      data_ = owned_.get();
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (!owned_) return;
    switch (view_.dtype) {
      case Dtype::f64: round<double>(); break;
      case Dtype::f32: round<float>(); break;
      default: round<bf16>(); break;
    }
  }
  A& operator[](int64_t i) const { return data_[i]; }
  A* at(int64_t i) const { return data_ + i; }
  void fill(A value) const { std::fill_n(data_, view_.elements(), value); }

 private:
  template <class T>
  void round() {
    for (int64_t i = 0; i < view_.elements(); ++i) {
      view_.as<T>()[i] = T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(data_[i]));
    }
  }
  TensorView view_;
  std::unique_ptr<A[]> owned_;
  A* data_ = nullptr;
};

/// An accumulator, in place. Its type is A.
template <class A>
A* accumulator(const TensorView& view) {
  HEDDLE_CHECK(view.dtype == dtype_of<A>, "an accumulator of type {}", name_of(view.dtype));
  return view.as<A>();
}

// The operand that tells A apart: f64 where it is f64, else f32.
inline TensorView in0(const KernelCall& call) { return call.in[0]; }
inline TensorView in1(const KernelCall& call) { return call.in[1]; }
inline TensorView in2(const KernelCall& call) { return call.in[2]; }
inline TensorView in4(const KernelCall& call) { return call.in[4]; }
inline TensorView out0(const KernelCall& call) { return call.out[0]; }
inline TensorView updates0(const KernelCall& call) { return call.updates[0]; }

template <TensorView (*decider)(const KernelCall&), device::Kernel in_float, device::Kernel in_double>
void by_type(const KernelCall& call) {
  decider(call).dtype == Dtype::f64 ? in_double(call) : in_float(call);
}

KernelEntry entry(std::string_view kind, device::Kernel run);

// The families, one a file.
std::vector<KernelEntry> load_kernels();
std::vector<KernelEntry> embedding_kernels();
std::vector<KernelEntry> linear_kernels();
std::vector<KernelEntry> fp8_kernels();
std::vector<KernelEntry> norm_kernels();
std::vector<KernelEntry> hyper_connection_kernels();
std::vector<KernelEntry> gated_stream_kernels();
std::vector<KernelEntry> dropout_kernels();
std::vector<KernelEntry> shape_kernels();
std::vector<KernelEntry> position_kernels();
std::vector<KernelEntry> attention_kernels();
std::vector<KernelEntry> cache_kernels();
std::vector<KernelEntry> selection_kernels();
std::vector<KernelEntry> compression_kernels();
std::vector<KernelEntry> recurrence_kernels();
std::vector<KernelEntry> convolution_kernels();
std::vector<KernelEntry> mlp_kernels();
std::vector<KernelEntry> router_kernels();
std::vector<KernelEntry> router_loss_kernels();
std::vector<KernelEntry> expert_kernels();
std::vector<KernelEntry> expert_bias_kernels();
std::vector<KernelEntry> capacity_kernels();
std::vector<KernelEntry> balance_kernels();
std::vector<KernelEntry> loss_kernels();
std::vector<KernelEntry> preference_kernels();
std::vector<KernelEntry> optimizer_kernels();
std::vector<KernelEntry> muon_kernels();
std::vector<KernelEntry> qk_clip_kernels();
std::vector<KernelEntry> exact_kernels();
std::vector<KernelEntry> copy_kernels();

}  // namespace heddle::kernels::reference
