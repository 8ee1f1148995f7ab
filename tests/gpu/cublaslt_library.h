// A cuBLASLt of the tests' own, which multiplies on the host by plain loops and is as strict as the real one's
// documents: descriptions that don't fit together name no algorithm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::lt {

/// What the library was asked for, and what it is to answer.
struct Library {
  int algorithms = 4;                      // that it names for a product; each adds in an order of its own
  float ms[8] = {4, 3, 1, 2, 5, 5, 5, 5};  // of each, of the tests' clock
  int refused = -1;                        // one that never runs
  float clock_ms = 0;
  int64_t products = 0, batch = 0;  // so far; of the last
  int algorithm = -1;               // the last
  std::size_t version = 0;          // that it says it has; 0: of the headers, 1.0
};

}  // namespace heddle::lt

extern "C" heddle::lt::Library* heddle_test_cublaslt();
