// A value of a listing: a tensor that an op writes, or a persistent one that lives as long as the listing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"

namespace heddle::ir {

using ValueId = int32_t;
constexpr ValueId none = -1;

/// The purpose of a value. The last five persist across microbatches and steps; the others live in a frame, one a
/// (listing, microbatch).
enum class Role : uint8_t {
  input,        // read from the batch: token ids, labels, loss scales
  activation,   // made in F
  metadata,     // made in F, not differentiable: routing, counts
  gradient,     // made in I
  weight,       // what the kernels read; may be packed
  accumulator,  // fp32 weight gradient, summed over the microbatches of a step
  optimizer,    // fp32 master weight and moments
  statistic,    // sums over the step that the host reads: losses, expert load, gradient norm
  cache,        // what attention reads of earlier tokens, written row by row as they come (ops/cache.cpp)
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

/// The layout of a weight in memory. `packed` is the backend's own blocking, made by a pack op.
enum class Layout : uint8_t { rows, packed };

/// The memory that a value lies in: the device's arena, the host's, or one on the host that outlives the process
/// and holds persistent values only. Kernels compute on the device's; values go to the other two and come back by
/// copies (Moves::to_host, from_host). A persistent value in no memory is the form of what ops reserve or gather.
enum class Space : uint8_t { device, host, shared, nowhere };
constexpr int kSpaces = 3;  // that are memories
std::string_view name_of(Space space);

/// A tensor, or a part of one: elements of another value, with a shape of their own, that are contiguous or lie in
/// equal stretches at equal distances. A part has no storage but its base's, which lives from the first write into
/// any part to the last use of any. A part takes type, role and space of its base. Ops on parts that don't overlap
/// don't wait for each other.
struct Value {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  Role role = Role::activation;
  Layout layout = Layout::rows;
  Space space = Space::device;
  bool frozen = false;  // a weight that is not trained: it has no gradient (ir/gradient)
  /// Bytes when `layout` is packed; 0 means the product of the shape times the element size.
  int64_t packed_bytes = 0;
  /// A persistent value that another listing of the same rank owns: the same storage under the same name.
  int shared_with = -1;
  ValueId part_of = none;     // the base, which is no part itself and has a static shape
  int64_t first_element = 0;  // of the base
  int64_t stretches = 1;      // in which a part's elements lie
  int64_t stretch_step = 0;   // elements of the base from the beginning of one to that of the next
};

}  // namespace heddle::ir
