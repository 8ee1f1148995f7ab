// The tokens of a microbatch by the id they bear.
#pragma once

#include <cstdint>

namespace heddle::kernels::host {

/// The tokens of id i are tokens[starts[i] .. starts[i + 1]], increasing. Does not own the arrays.
struct TokensOfIds {
  const int32_t* starts;   // [V + 1]
  const int32_t* tokens;   // those with an id at all
  const int32_t* present;  // the ids that occur, in order of first occurrence
  int64_t kinds;           // how many those are
};

}  // namespace heddle::kernels::host
