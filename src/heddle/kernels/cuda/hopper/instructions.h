// What kernels of Hopper's own are written with: barriers that count bytes, tensor copies, descriptions of tiles.
// NVIDIA, PTX ISA 8.x, "mbarrier", "Tensor copies", "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <cuda.h>

#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

HEDDLE_DEVICE uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

HEDDLE_DEVICE void make_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
HEDDLE_DEVICE void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
HEDDLE_DEVICE void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
HEDDLE_DEVICE void wait_for(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\n"
      "done:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// A box of the tensor, from (column, row) on.
HEDDLE_DEVICE void copy_box(uint32_t to, const CUtensorMap* map, int32_t column, int32_t row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// A tile in shared memory in rows of 128 swizzled bytes. `next`: from 64 columns to the next 64 (by column only);
/// eight rows on is always 1024 bytes.
HEDDLE_DEVICE uint64_t tile_at(uint32_t address, uint32_t next) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return (address & 0x3ffffu) >> 4 | static_cast<uint64_t>(next >> 4) << 16 | uint64_t{1024 >> 4} << 32 |
         kSwizzle128;
}

}  // namespace heddle::kernels::cuda
