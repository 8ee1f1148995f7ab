// The way in which attention meets the keys of a sequence that is cut among ranks:
// docs/features/context_parallel.md.
#pragma once

#include "heddle/base/words.h"

namespace heddle::model {

enum class Context : uint8_t { gather, ulysses, ring, hybrid, double_ring };

/// True for ways that cut the ranks of cp into runs of neighbours.
constexpr bool has_runs(Context way) { return way == Context::hybrid || way == Context::double_ring; }

constexpr auto words_of(Context) {
  return std::to_array<Word<Context>>({{Context::gather, "gather"},
                                       {Context::ulysses, "ulysses"},
                                       {Context::ring, "ring"},
                                       {Context::hybrid, "hybrid"},
                                       {Context::double_ring, "double_ring"}});
}

}  // namespace heddle::model
