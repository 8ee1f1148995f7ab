#include "heddle/device/counted_rows.h"

#include <algorithm>
#include <numeric>

namespace heddle::device {

namespace {

/// The entry of a value, or null.
template <class Rows>
auto* counted_entry(Rows& rows, ir::ValueId id) {
  const auto at = std::lower_bound(rows.begin(), rows.end(), id,
                                   [](const auto& entry, ir::ValueId wanted) { return entry.first < wanted; });
  return at != rows.end() && at->first == id ? &at->second : nullptr;
}

}  // namespace

CountedRows::CountedRows(const ir::Listing& listing) : listing_(listing) {
  for (const ir::Op& op : listing.ops) {
    if (op.def->room == nullptr) continue;
    for (const ir::ValueId id : op.out) rows_.emplace_back(id, 0);
  }
  std::sort(rows_.begin(), rows_.end());
}

const int64_t* CountedRows::rows_of(ir::ValueId id) const { return counted_entry(rows_, id); }

bool CountedRows::concerns(const ir::Op& op) const {
  if (op.def->room != nullptr) return true;
  for (const auto* ids : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *ids) {
      if (id == ir::none) continue;
      for (const ir::Dim& dim : listing_.value(id).shape) {
        if (!dim.is_static() && rows_of(dim.rows_of) != nullptr) return true;
      }
    }
  }
  return false;
}

int64_t CountedRows::fit(const ir::Op& op, std::span<TensorView> views) const {
  int64_t most = 0;
  size_t at = 0;
  for (const auto* ids : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *ids) {
      TensorView& view = views[at++];
      if (id == ir::none) continue;
      const ir::Shape& shape = listing_.value(id).shape;
      for (size_t i = 0; i < shape.size(); ++i) {
        const int64_t* rows = shape[i].is_static() ? nullptr : rows_of(shape[i].rows_of);
        if (rows == nullptr) continue;
        view.dims[i] = shape[i].count * *rows;
        most = std::max(most, view.dims[i]);
      }
    }
  }
  return most;
}

void CountedRows::note(const ir::Op& op, std::span<const TensorView> out) {
  if (op.def->room == nullptr) return;
  const auto* counts = out[0].as<const int32_t>();
  const int64_t half = out[0].elements() / 2;
  *counted_entry(rows_, op.out[0]) = std::accumulate(counts + half, counts + 2 * half, int64_t{0});
}

}  // namespace heddle::device
