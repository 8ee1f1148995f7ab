// The rows of queries of a call, as kernels take them.
#pragma once

#include "heddle/kernels/cuda/selection_kernels.h"
#include "heddle/kernels/query_rows.h"

namespace heddle::kernels::cuda {

inline QueryRowsArgs rows_of(const device::KernelCall& call) {
  const QueryRows rows(call);
  return {.S = rows.S,
          .own = rows.own,
          .keys = rows.keys,
          .rate = rows.rate,
          .cp = rows.cp,
          .tp = rows.tp,
          .cp_index = rows.cp_index,
          .tp_index = rows.tp_index,
          .starts = rows.starts,
          .places = rows.places};
}

}  // namespace heddle::kernels::cuda
