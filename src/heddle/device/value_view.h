// A value of a listing where it lies in memory, as kernels see it.
#pragma once

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/ir/listing.h"

namespace heddle::device {

/// InternalError where the value has more dims than a view.
inline TensorView view_of(const ir::Value& value, void* data, const ir::RowCounts& rows) {
  HEDDLE_CHECK(value.shape.size() <= TensorView::kMostDims, "'{}' has {} dims", value.name, value.shape.size());
  TensorView view;
  view.data = data;
  view.dtype = value.dtype;
  view.layout = value.layout;
  view.rank = static_cast<int8_t>(value.shape.size());
  view.stretches = value.stretches;
  view.step_bytes = value.stretch_step * size_of(value.dtype);
  for (size_t i = 0; i < value.shape.size(); ++i) {
    const ir::Dim& dim = value.shape[i];
    view.dims[i] = dim.is_static() ? dim.count : dim.count * rows.rows(dim.rows_of);
  }
  return view;
}

}  // namespace heddle::device
