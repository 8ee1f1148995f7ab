// A value of a stage: a tensor that an op writes, or a persistent one that lives as long as the stage.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"

namespace heddle::ir {

using ValueId = int32_t;
constexpr ValueId none = -1;

/// What a value is for. The last four persist across microbatches and steps; the others live in a frame, one a
/// (stage, microbatch).
enum class Role : uint8_t {
  input,        // read from the batch: token ids, labels, loss scales
  activation,   // made in F
  metadata,     // made in F, not differentiable: routing, counts
  gradient,     // made in I
  weight,       // what the kernels read; may be packed
  accumulator,  // fp32 weight gradient, summed over the microbatches of a step
  optimizer,    // fp32 master weight and moments
  statistic,    // sums over the step that the host reads: losses, expert load, gradient norm
};
constexpr bool is_persistent(Role role) { return role >= Role::weight; }
std::string_view name_of(Role role);

/// A number, or `count` × the rows that the value `rows_of` counts at run time (what an exchange receives).
struct Dim {
  int64_t count = 1;
  ValueId rows_of = none;
  bool is_static() const { return rows_of == none; }
  bool operator==(const Dim&) const = default;
};
using Shape = std::vector<Dim>;

/// How a weight lies in memory. `packed` is the backend's own blocking, made by a pack op.
enum class Layout : uint8_t { rows, packed };

/// Which memory a value lies in: the device's arena, or the host's. Kernels compute on the device's; values go to
/// the host and come back by copy_out and copy_in only.
enum class Space : uint8_t { device, host };
constexpr int kSpaces = 2;
std::string_view name_of(Space space);

struct Value {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  Role role = Role::activation;
  Layout layout = Layout::rows;
  Space space = Space::device;
  /// Bytes when `layout` is packed; 0 means the product of the shape times the element size.
  int64_t packed_bytes = 0;
  /// A persistent value that another stage of the same rank owns: the same storage under the same name.
  int shared_with_stage = -1;
};

}  // namespace heddle::ir
