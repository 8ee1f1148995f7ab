// Copies on the host of values that a device has: row counts and routes that it has counted, and placements that
// the host has chosen. The host needs them to say where rows go. See KernelCall::host_copies.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/device/row_work.h"

namespace heddle::device {

class HostCopies {
 public:
  std::vector<std::byte>& of(const void* on_device) const { return copies_[on_device]; }

  /// The value as the host may read it.
  static TensorView on_host(const KernelCall& call, const TensorView& view) {
    if (call.host_copies == nullptr || !view) return view;
    const auto at = call.host_copies->copies_.find(view.data);
    const auto bytes = static_cast<size_t>(view.elements() * size_of(view.dtype));
    HEDDLE_CHECK(at != call.host_copies->copies_.end() && at->second.size() >= bytes,
                 "'{}' reads on the host what was not copied there", call.op->kind());
    TensorView copy = view;
    copy.data = const_cast<std::byte*>(at->second.data());
    return copy;
  }

  /// Puts what the host has made into a value, and leaves its copy.
  static void put(const KernelCall& call, const TensorView& view, const void* made) {
    const int64_t bytes = view.elements() * size_of(view.dtype);
    call.row_work->upload(view.data, made, bytes, call.stream);
    keep(call, view, made);
  }
  /// Leaves a copy of what the host has put into a value.
  static void keep(const KernelCall& call, const TensorView& view, const void* made) {
    if (call.host_copies == nullptr) return;
    const auto* first = static_cast<const std::byte*>(made);
    call.host_copies->of(view.data).assign(first, first + view.elements() * size_of(view.dtype));
  }

 private:
  mutable std::map<const void*, std::vector<std::byte>> copies_;  // kernels leave theirs beside what they read
};

}  // namespace heddle::device
