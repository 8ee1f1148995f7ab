// copy_out, copy_in: the same bytes in the other arena; copy: in the same; snapshot: with checksums of what is
// read.
#include <algorithm>
#include <cstring>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

void copy(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out.empty() ? call.updates[0] : call.out[0];
  const int64_t bytes = call.op->attributes.integer_or("bytes", y.elements() * size_of(y.dtype));
  if (bytes > 0) std::memcpy(y.data, x.data, static_cast<size_t>(bytes));
}

void snapshot(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.updates[0];
  const auto bytes = static_cast<size_t>(x.elements() * size_of(x.dtype));
  auto* sums = call.updates[1].as<uint32_t>();
  const auto* from = x.as<const std::byte>();
  auto* to = y.as<std::byte>();
  for (size_t at = 0, chunk = 0; at < bytes; at += kChunkBytes, ++chunk)
    sums[chunk] = crc32c_copy(to + at, from + at, std::min(kChunkBytes, bytes - at));
}

// Copies packed values, too.
KernelEntry of_bytes(std::string_view kind, device::Kernel run = copy) {
  KernelEntry copies = entry(kind, run);
  copies.supports = nullptr;
  return copies;
}

}  // namespace

std::vector<KernelEntry> copy_kernels() {
  return {of_bytes("copy_out"), of_bytes("copy_in"), of_bytes("copy"), of_bytes("snapshot_out", snapshot),
          of_bytes("snapshot", snapshot)};
}

}  // namespace heddle::kernels::reference
