// split, concat: columns apart and together, bytes unchanged. T rows of any type.
#include <cstring>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// Copies a block of `width` bytes a row between matrices with rows of `to_pitch` and `from_pitch` bytes; zeros
/// where `from` is null.
void copy_columns(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t width,
                  int64_t T) {
  for (int64_t t = 0; t < T; ++t) {
    if (from) {
      std::memcpy(to + t * to_pitch, from + t * from_pitch, static_cast<size_t>(width));
    } else {
      std::memset(to + t * to_pitch, 0, static_cast<size_t>(width));
    }
  }
}

void split(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);  // each as a row of its own
  const int64_t size = size_of(x.dtype), T = x.dim(0) * runs, pitch = x.dim(1) / runs * size;
  const int64_t a = call.op->attributes.integer("first") * size;
  copy_columns(call.out[0].as<std::byte>(), a, x.as<std::byte>(), pitch, a, T);
  copy_columns(call.out[1].as<std::byte>(), pitch - a, x.as<std::byte>() + a, pitch, pitch - a, T);
}

void concat(const KernelCall& call) {
  const TensorView& y = call.out[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);
  const int64_t size = size_of(y.dtype), T = y.dim(0) * runs, pitch = y.dim(1) / runs * size;
  const int64_t a = call.op->attributes.integer("first") * size;
  const int64_t b = call.op->attributes.integer("second") * size;
  copy_columns(y.as<std::byte>(), pitch, operand(call.in, 0).as<std::byte>(), a, a, T);
  copy_columns(y.as<std::byte>() + a, pitch, operand(call.in, 1).as<std::byte>(), b, b, T);
}

}  // namespace

std::vector<KernelEntry> shape_kernels() { return {entry("split", split), entry("concat", concat)}; }

}  // namespace heddle::kernels::reference
