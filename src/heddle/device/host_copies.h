// Copies on the host of values that a device has counted: row counts and routes, which the host needs to say where
// rows go. See KernelCall::host_copies.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"

namespace heddle::device {

class HostCopies {
 public:
  std::vector<std::byte>& of(const void* on_device) { return copies_[on_device]; }

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

 private:
  std::map<const void*, std::vector<std::byte>> copies_;
};

}  // namespace heddle::device
