// Treatment of a document or a sample whose text came before.
#pragma once

#include "heddle/base/words.h"

namespace heddle {

enum class Repeated : uint8_t {
  automatic,  // samples are kept, for their repetition is a weight; documents are dropped
  keep,
  drop,
};
constexpr auto words_of(Repeated) {
  return std::to_array<Word<Repeated>>(
      {{Repeated::automatic, "auto"}, {Repeated::keep, "keep"}, {Repeated::drop, "drop"}});
}

}  // namespace heddle
