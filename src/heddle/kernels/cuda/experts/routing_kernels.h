// Lists of the tokens and rows of an exchange, and the choice of its topology. The arguments:
// device/exchange_work.h.
#pragma once

#include "heddle/device/exchange_work.h"
#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Threads of a block that goes through a list. In the emulator lists of tests are longer than a block, too.
#ifdef HEDDLE_EMULATOR
constexpr int kListThreads = 2 * kWarp;
#else
constexpr int kListThreads = 256;
#endif

/// A block a (destination, source).
HEDDLE_KERNEL void list_tokens(device::ListTokens args);
HEDDLE_KERNEL void tokens_of_places(device::TokensOfPlaces args);

struct RunningSumsArgs {
  int32_t* counts;  // [0] is written, [1 … count] are counts, then the sums up to each
  int64_t count;
};
HEDDLE_KERNEL void running_sums(RunningSumsArgs args);

/// A block a (destination, source, expert).
HEDDLE_KERNEL void count_slots(device::ListRows args);
HEDDLE_KERNEL void list_slots(device::ListRows args);
/// A block an (expert, source).
HEDDLE_KERNEL void place_rows(device::PlaceRows args);

/// A block a rank.
HEDDLE_KERNEL void rows_in_slots(device::RowsInSlots args);
/// One block.
HEDDLE_KERNEL void fit_room(device::FitRoom args);

HEDDLE_KERNEL void own_numbers(device::OwnNumbers args);
/// One block; dynamic shared memory: four doubles a rank.
HEDDLE_KERNEL void choose_route(device::ChooseRoute args);
constexpr int64_t route_shared_bytes(int64_t ranks) { return ranks * 4 * 8; }

}  // namespace heddle::kernels::cuda
