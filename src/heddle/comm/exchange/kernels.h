// The communication kernels of the experts' exchange, by file. `in_place`: as RowWork::in_place says of the memory
// that they run on, which is what their scratch depends on.
#pragma once

#include "heddle/comm/collectives.h"

namespace heddle::comm {

const std::vector<Collective>& count_kernels();               // share_counts, counts_to_host
const std::vector<Collective>& there_kernels(bool in_place);  // dispatch, combine_dgrad
const std::vector<Collective>& back_kernels(bool in_place);   // combine, dispatch_dgrad

}  // namespace heddle::comm
