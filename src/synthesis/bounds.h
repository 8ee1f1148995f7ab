// Lower bounds on the makespan of a synchronous step for given times, caps and placement: no order can beat them.
//
//   work    a rank begins when the first microbatch has come down to it, and then has all its work to do
//   chain   one microbatch has to go through all stages and back, and the first stage's W comes last
//   memory  stage s holds a microbatch at least from its F until what lies behind it has gone forward and back, and
//           a rank holds no more than its cap: bytes × time of all its microbatches ≤ cap × (makespan − its
//           beginning), Little's law
//
// Where pairs are allowed, each half counts as the shorter of alone with its exchanges and its part of a pair.
#pragma once

#include <algorithm>

#include "synthesis/orders.h"

namespace heddle::schedule {

struct Bounds {
  double work = 0, chain = 0, memory = 0;
  double makespan() const { return std::max({work, chain, memory}); }
};

Bounds bounds_of(const OrderTask& task, bool pairs);

}  // namespace heddle::schedule
