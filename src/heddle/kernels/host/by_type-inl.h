// The choice between the bf16 and the fp32 form of a kernel's rows. Compiled once for each instruction set.
#if defined(HEDDLE_KERNELS_HOST_BY_TYPE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_BY_TYPE_INL_H
#undef HEDDLE_KERNELS_HOST_BY_TYPE_INL_H
#else
#define HEDDLE_KERNELS_HOST_BY_TYPE_INL_H
#endif

#include "heddle/device/kernel_call.h"
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// Calls the form that the first operand's type asks for, on the rows from begin to end.
template <auto narrow, auto wide>
HWY_INLINE void by_type(const device::KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? narrow(call, begin, end) : wide(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
