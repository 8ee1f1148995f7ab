// Ops that copy values or move their storage. They are the copies between the device's arena and those on the host,
// each way on a stream of its own, and the copy within a memory. One op makes room for a value, of the form of one
// that lies elsewhere. One op drops a value. One op lets two persistent values take each other's place. What lies
// on the host keeps its shape, type and blocking. Passes write these ops around values that needn't stay on the
// device.
#include <algorithm>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// A copy makes a value in the other space, or updates one that persists there.
std::vector<Value> copied(const Listing& listing, const Op& op, bool to_host) {
  const Rule rule(listing, op);
  const Value& x = rule.in(0);
  const auto check = [&](const Value& value, bool on_host) {
    HEDDLE_CHECK((value.space != ir::Space::device) == on_host, "op '{}' finds '{}' on the {}", op.kind(),
                 value.name, name_of(value.space));
  };
  check(x, !to_host);
  rule.require(op.attributes.integer_or("bytes", 0) == x.packed_bytes,
               "says the bytes of what is packed, and of nothing else");
  if (!op.updates.empty()) {
    const Value& y = rule.updated(0);
    check(y, to_host);
    rule.require(
        y.dtype == x.dtype && y.shape == x.shape && y.layout == x.layout && y.packed_bytes == x.packed_bytes,
        "a copy is like what it is of");
    return {};
  }
  Value y = rule.like(0);
  y.layout = x.layout;
  y.packed_bytes = x.packed_bytes;
  y.role = !is_persistent(x.role) ? x.role : x.role == Role::accumulator ? Role::gradient : Role::activation;
  y.space = to_host ? ir::Space::host : ir::Space::device;
  return {std::move(y)};
}

Cost copy_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  return Cost{.bytes = 2.0 * static_cast<double>(listing.bytes(op.in[0], rows))};
}

// clang-format off
const OpDef copy_out{
    .kind = "copy_out",
    .operands = "x", .results = "y?", .updates = "y?", .attributes = "bytes?",
    .stream = StreamKind::copy_out,
    .moves = ir::Moves::to_host,
    .infer = [](const Listing& listing, const Op& op) { return copied(listing, op, true); },
    .cost = copy_cost,
};

const OpDef copy_in{
    .kind = "copy_in",
    .operands = "x", .results = "y?", .updates = "y?", .attributes = "bytes?",
    .stream = StreamKind::copy_in,
    .moves = ir::Moves::from_host,
    .infer = [](const Listing& listing, const Op& op) { return copied(listing, op, false); },
    .cost = copy_cost,
};

const OpDef reserve{
    .kind = "reserve",
    .operands = "x", .results = "y", .attributes = "bytes?",
    .reserves = true,
    .timed = true,
    .infer = [](const Listing& listing, const Op& op) { return copied(listing, op, false); },
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};

// The copy of a persistent value, beside itself.
const OpDef copy{
    .kind = "copy",
    .operands = "x", .updates = "y",
    .overwrites = "y",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.updated(0).dtype == rule.in(0).dtype && rule.updated(0).shape == rule.in(0).shape &&
                       rule.in(0).layout == ir::Layout::rows && rule.updated(0).layout == ir::Layout::rows,
                   "a copy is like what it is of, and neither is packed");
    }),
    .cost = copy_cost,
};
// clang-format on

// The copy of a persistent value in memory that outlives the process, with the checksum of each chunk of the
// source. It comes from the device, or by the host's processor from where it lies on the host.
std::vector<Value> snapshot_of(const Listing& listing, const Op& op) {
  const Rule rule(listing, op);
  const Value &x = rule.in(0), &y = rule.updated(0), &sums = rule.updated(1);
  rule.require(is_persistent(x.role) && y.space == ir::Space::shared && sums.space == ir::Space::shared,
               "copies what persists to memory that outlives the process");
  rule.require(
      y.dtype == x.dtype && y.shape == x.shape && x.layout == ir::Layout::rows && y.layout == ir::Layout::rows,
      "a copy is like what it is of, and neither is packed");
  const int64_t bytes = listing.bytes(op.in[0], ir::FixedRows());
  rule.require(sums.dtype == Dtype::i32 && sums.shape == ir::Shape{fixed(std::max<int64_t>(1, chunks_of(bytes)))},
               "has a checksum for each chunk");
  return {};
}

// clang-format off
const OpDef snapshot_out{
    .kind = "snapshot_out",
    .operands = "x", .updates = "y sums",
    .stream = StreamKind::copy_out,
    .calls_host = true,
    .moves = ir::Moves::to_host,
    .overwrites = "y sums",
    .infer = snapshot_of,
    .cost = copy_cost,
};

const OpDef snapshot{
    .kind = "snapshot",
    .operands = "x", .updates = "y sums",
    .calls_host = true,
    .overwrites = "y sums",
    .infer = snapshot_of,
    .cost = copy_cost,
};

const OpDef flip{
    .kind = "flip",
    .updates = "a b",
    .flips = true,
    .infer = by_rule([](const Rule& rule) {
      const Value &a = rule.updated(0), &b = rule.updated(1);
      for (const Value* value : {&a, &b}) {
        HEDDLE_CHECK(is_persistent(value->role) && value->part_of == none, "'flip' of '{}', which is a part or does not persist",
                     value->name);
      }
      rule.require(&a != &b && a.dtype == b.dtype && a.shape == b.shape && a.layout == b.layout && a.packed_bytes == b.packed_bytes,
                   "what it flips is alike");
    }),
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};

const OpDef drop{
    .kind = "drop",
    .operands = "x*",
    .drops = true,
    .infer = [](const Listing& listing, const Op& op) {
      for (const ValueId x : op.in) {
        HEDDLE_CHECK(x != none && !is_persistent(listing.value(x).role), "'drop' of '{}', which persists",
                     x == none ? "none" : listing.value(x).name);
      }
      return std::vector<Value>{};
    },
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> copy_ops() {
  return {&copy_out, &copy_in, &copy, &snapshot_out, &snapshot, &reserve, &drop, &flip};
}

}  // namespace heddle::ops
