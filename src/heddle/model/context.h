// The way in which attention meets the keys of a sequence that is cut among ranks:
// docs/features/context_parallel.md.
#pragma once

#include "heddle/base/words.h"

namespace heddle::model {

enum class Context : uint8_t { gather, ulysses, ring, hybrid };

constexpr auto words_of(Context) {
  return std::to_array<Word<Context>>({{Context::gather, "gather"},
                                       {Context::ulysses, "ulysses"},
                                       {Context::ring, "ring"},
                                       {Context::hybrid, "hybrid"}});
}

}  // namespace heddle::model
