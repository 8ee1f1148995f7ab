#include "heddle/device/by_stretches.h"

#include <vector>

#include "heddle/base/error.h"

namespace heddle::device {

namespace {

int64_t stretches_of(std::span<const TensorView> in, std::span<const TensorView> out) {
  int64_t most = 1;
  for (const std::span<const TensorView> views : {in, out}) {
    for (const TensorView& view : views) {
      HEDDLE_CHECK(view.stretches == 1 || most == 1 || most == view.stretches,
                   "{} and {} stretches of rows in one op", most, view.stretches);
      most = std::max(most, view.stretches);
    }
  }
  return most;
}

}  // namespace

bool in_stretches(std::span<const TensorView> in, std::span<const TensorView> out) {
  return stretches_of(in, out) > 1;
}

void run_by_stretches(const KernelCall& call) {
  const int64_t count = stretches_of(call.in, call.out);
  std::vector<TensorView> in(call.in.begin(), call.in.end()), out(call.out.begin(), call.out.end());
  KernelCall one = call;
  one.in = in;
  one.out = out;
  for (int64_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < in.size(); ++k) in[k] = call.in[k].stretches > 1 ? call.in[k].stretch(i) : call.in[k];
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = call.out[k].stretches > 1 ? call.out[k].stretch(i) : call.out[k];
    call.of_stretch(one);
  }
}

}  // namespace heddle::device
