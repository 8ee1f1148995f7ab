// The arguments of a kernel. One form for every op and backend, so that a stream can queue any kernel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "heddle/base/dtype.h"
#include "heddle/ir/axes.h"
#include "heddle/ir/op.h"

namespace heddle::comm {
class Communicator;
}

namespace heddle::device {

/// A tensor in memory: row-major, at most four dims, contiguous or, of a part, in equal stretches of whole rows at
/// equal distances. Kernels find it contiguous (runtime/by_stretches), collectives take it as it lies. An absent
/// optional operand has data == nullptr.
struct TensorView {
  static constexpr int kMostDims = 4;
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  ir::Layout layout = ir::Layout::rows;
  int8_t rank = 0;
  std::array<int64_t, kMostDims> dims{1, 1, 1, 1};
  int64_t stretches = 1, step_bytes = 0;  // from the beginning of one to that of the next

  explicit operator bool() const { return data != nullptr; }
  int64_t dim(int i) const { return dims[i]; }
  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  /// Product of all dims but the last; the last. A tensor seen as a matrix.
  int64_t rows() const { return rank == 0 ? 1 : elements() / std::max<int64_t>(1, columns()); }
  int64_t columns() const { return rank == 0 ? 1 : dims[rank - 1]; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  /// Its i-th stretch, contiguous.
  TensorView stretch(int64_t i) const {
    TensorView one = *this;
    one.data = static_cast<std::byte*>(data) + i * step_bytes;
    one.dims[0] /= stretches;
    one.stretches = 1;
    return one;
  }
};

/// Copies on the host of what a device has counted (the outputs of ops with a host stall), by address on the
/// device. A value that is alive has its address to itself.
class HostCopies;
struct RowWork;

struct KernelCall;
using Kernel = void (*)(const KernelCall&);

/// The product that an op runs on some rows at a time while others are on their way (ir::OpDef::by_pieces).
struct InnerProduct {
  Kernel run = nullptr;
  const ir::Op* op = nullptr;  // as it would stand by itself
  int64_t scratch_at = 0;      // its own scratch, from the call's
};

struct KernelCall {
  const ir::Op* op = nullptr;
  Kernel of_stretch = nullptr;          // where operands lie in stretches: what runs on each in turn
  std::span<const TensorView> in;       // in the order of Op::in
  std::span<const TensorView> out;      // written, never read
  std::span<const TensorView> updates;  // read and written
  /// True for the first microbatch of a step: accumulators hold garbage and are overwritten, not added to.
  bool overwrite = false;
  int microbatch = 0;
  std::byte* scratch = nullptr;                // what the kernel asked for, 64-byte aligned, uninitialised
  const std::byte* input = nullptr;            // of an op that loads: the bytes of its input; null for all others
  void* stream = nullptr;                      // the backend's own stream; null on the CPU
  const HostCopies* host_copies = nullptr;     // null where the host reads the device's memory
  const RowWork* row_work = nullptr;           // the backend's part of collectives
  comm::Communicator* communicator = nullptr;  // of the op's group, for communication ops
  const ir::Coordinates* place = nullptr;      // of this rank in the mesh; null: alone
  InnerProduct product;                        // of an op that runs one by pieces
};

}  // namespace heddle::device
