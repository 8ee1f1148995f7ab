#include "heddle/passes/host/staged_ops.h"

#include <utility>
#include <vector>

#include "heddle/passes/copy_ops.h"

namespace heddle::passes {

using ir::none;
using ir::Op;
using ir::ValueId;

Op copy_beside(std::string_view kind, const ir::Listing& listing, ValueId value, const Op& beside) {
  Op copy = op_beside(kind, value, beside);
  copy.condition = beside.condition;
  const int64_t packed = listing.value(value).packed_bytes;
  if (packed > 0) copy.attributes.set("bytes", packed);
  return copy;
}

namespace {

// A copy whose end on the device has moved to the host too goes over the device.
void append_copy(ir::Listing& listing, Op op) {
  const auto on_host = [&](ValueId id) { return listing.value(id).space == ir::Space::host; };
  const Op beside = op;
  if (op.def->moves == ir::Moves::to_host && on_host(op.in[0])) {
    op.in[0] = listing.append(copy_beside("copy_in", listing, op.in[0], beside),
                              {listing.value(op.in[0]).name + ".passing"})[0];
  } else if (op.def->moves == ir::Moves::from_host && !op.updates.empty() && on_host(op.updates[0])) {
    const ValueId there = op.updates[0];
    const ValueId passing = listing.append(copy_beside("copy_in", listing, op.in[0], beside),
                                           {listing.value(there).name + ".passing"})[0];
    op = copy_beside("copy_out", listing, passing, beside);
    op.updates = {there};
  }
  listing.ops.push_back(std::move(op));
}

}  // namespace

void append_staged(ir::Listing& listing, Op op) {
  if (!ir::runs(*op.def) || ir::runs_on_host(op)) {
    listing.ops.push_back(std::move(op));
    return;
  }
  if (ir::is_copy(op.def->moves)) return append_copy(listing, std::move(op));
  const auto on_host = [&](ValueId id) { return id != none && listing.value(id).space == ir::Space::host; };
  const Op beside = op;
  for (ValueId& id : op.in) {
    if (on_host(id))
      id = listing.append(copy_beside("copy_in", listing, id, beside), {listing.value(id).name + ".back"})[0];
  }
  std::vector<std::pair<ValueId, ValueId>> leaving;  // from the device, to the host
  for (size_t u = 0; u < op.updates.size(); ++u) {
    ValueId& id = op.updates[u];
    if (!on_host(id) || ir::reaches_host(op, u)) continue;
    const ValueId there = id;
    const char* kind = ir::overwrites(op, u) ? "reserve" : "copy_in";
    id = listing.append(copy_beside(kind, listing, there, beside), {listing.value(there).name + ".new"})[0];
    leaving.emplace_back(id, there);
  }
  listing.ops.push_back(std::move(op));
  for (const auto& [from, to] : leaving) {
    Op copy = copy_beside("copy_out", listing, from, beside);
    copy.updates = {to};
    listing.append(std::move(copy), {});
  }
}

void set_space(ir::Listing& listing, ValueId id, ir::Space space) {
  for (ir::Value& value : listing.values) {
    if (value.part_of == id) value.space = space;
  }
  listing.value(id).space = space;
}

}  // namespace heddle::passes
