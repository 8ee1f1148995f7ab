// copy_out, copy_in: the same bytes in the other arena; copy: in the same.
#include <cstring>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

void copy(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out.empty() ? call.updates[0] : call.out[0];
  const int64_t bytes = call.op->attributes.integer_or("bytes", y.elements() * size_of(y.dtype));
  if (bytes > 0) std::memcpy(y.data, x.data, static_cast<size_t>(bytes));
}

// What is packed, too.
KernelEntry of_bytes(std::string_view kind) {
  KernelEntry copies = entry(kind, copy);
  copies.supports = nullptr;
  return copies;
}

}  // namespace

std::vector<KernelEntry> copy_kernels() { return {of_bytes("copy_out"), of_bytes("copy_in"), of_bytes("copy")}; }

}  // namespace heddle::kernels::reference
