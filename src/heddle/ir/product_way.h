// The way in which the products of a layer's experts are computed.
#pragma once

#include <cstdint>

#include "heddle/base/words.h"

namespace heddle {

enum class ProductWay : uint8_t {
  cheapest,  // of the following, by what was measured
  grouped,   // one kernel over groups of any size
  batched,   // one kernel over groups of equal size
  serial,    // each group by the whole device, one after the other
};
constexpr auto words_of(ProductWay) {
  return std::to_array<Word<ProductWay>>({{ProductWay::cheapest, "auto"},
                                          {ProductWay::grouped, "grouped"},
                                          {ProductWay::batched, "batched"},
                                          {ProductWay::serial, "serial"}});
}

}  // namespace heddle
