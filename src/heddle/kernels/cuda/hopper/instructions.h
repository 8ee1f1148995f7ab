// Instructions for Hopper's own kernels: barriers that count bytes, tensor copies, descriptions of tiles. NVIDIA,
// PTX ISA 8.x, "mbarrier", "Tensor copies", "Asynchronous Warpgroup Level Matrix Instructions".
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

/// c[64, 128] (+)= a·b by the m64n128 instruction of these types, over its own part of k: of `a`, `b` (tile_at) and
/// `add`. `last` is what the instruction has at its end, where %67 is `constant`.
#define HEDDLE_WGMMA_N128(types, last, constant)                                                                \
  asm volatile(                                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned." types                                                                     \
      " {"                                                                                                      \
      "%0, %1, %2, %3, %4, %5, %6, %7, "                                                                        \
      "%8, %9, %10, %11, %12, %13, %14, %15, "                                                                  \
      "%16, %17, %18, %19, %20, %21, %22, %23, "                                                                \
      "%24, %25, %26, %27, %28, %29, %30, %31, "                                                                \
      "%32, %33, %34, %35, %36, %37, %38, %39, "                                                                \
      "%40, %41, %42, %43, %44, %45, %46, %47, "                                                                \
      "%48, %49, %50, %51, %52, %53, %54, %55, "                                                                \
      "%56, %57, %58, %59, %60, %61, %62, %63}, "                                                               \
      "%64, %65, p, " last ";\n}\n"                                                                             \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),         \
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),   \
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
        "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
        "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
        "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])  \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(constant))

}  // namespace heddle::kernels::cuda
