// The communication kernels of the experts' exchange, by file.
#pragma once

#include "heddle/comm/collectives.h"

namespace heddle::comm {

const std::vector<Collective>& count_kernels();     // share_counts, counts_to_host
const std::vector<Collective>& dispatch_kernels();  // dispatch, collect_dgrad
const std::vector<Collective>& collect_kernels();   // collect, dispatch_dgrad

}  // namespace heddle::comm
