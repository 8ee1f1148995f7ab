// The memory of a step, known before it runs: the walk of the executor with nobody to issue to. Nothing is
// allocated.
//
// A program that also evaluates or predicts is walked for each purpose in turn; the peak is the highest of all.
// Where experts are spread over ranks, the rows that a rank receives are only known at run time; the prediction
// takes them as balanced. On one rank it is exact.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heddle/ir/walk/walk.h"

namespace heddle::runtime {

struct MemoryPrediction {
  int64_t persistent_bytes = 0;                               // weights, accumulators, optimizer state, statistics
  int64_t peak_live_bytes = 0;                                // the highest of any moment
  int64_t reserved_bytes = 0;                                 // the arena's high water: the capacity that it needs
  int64_t host_peak_live_bytes = 0, host_reserved_bytes = 0;  // bytes of the arena of values on the host
};

/// Predicts a rank's memory. `backend` as in backends/backend.h; its kernels give each op's scratch. With a
/// capacity (0: unlimited) the values are placed as the executor places them in an arena of that size. It grows to
/// `limit_bytes` where they don't fit (0: it does not grow); OutOfMemory when they don't fit then. InternalError
/// when an op has no kernel. `crowding`: the rows that experts receive, over balanced ones.
MemoryPrediction predict_memory(const ir::StepProgram& program, int rank, std::string_view backend,
                                int64_t capacity_bytes = 0, double crowding = 1, int64_t limit_bytes = 0);

/// The values that live at the highest moment of a rank's step, largest first; `peak_bytes`: what they take, as
/// predict_memory says with that crowding.
std::vector<ir::Walk::Live> live_at_peak(const ir::StepProgram& program, int rank, std::string_view backend,
                                         int64_t peak_bytes, double crowding = 1);

/// The rows for which there is room where experts are spread over ranks: as many times the balanced ones, or all
/// there can be. `whole`: there must be, by any routing up to that; else as far as the limit allows, balanced ones
/// in any case.
struct Room {
  double crowding = 4;
  bool whole = false;
};

/// How many times the balanced rows the experts of a listing are given room for: as far as `room` goes, and its
/// tokens do.
double crowding_of(const ir::Listing& listing, const Room& room);

/// A small arena in which the program's steps run: a roomier one would only be used to avoid waits between streams.
/// Steps of fewer rows than there is room for were placed in it too. OutOfMemory when `limit_bytes` is not enough.
/// Not `tried`: without those steps, most of what it takes; they may want some room more.
int64_t arena_bytes(const ir::StepProgram& program, int rank, std::string_view backend, int64_t limit_bytes,
                    bool tried = true, const Room& room = {});

/// About the bytes of that arena without a limit, and soon known.
int64_t rough_arena_bytes(const ir::StepProgram& program, int rank, std::string_view backend, const Room& room);

/// True if arena_bytes finds an arena within so many bytes, by walking in one of that size.
bool keeps_to(const ir::StepProgram& program, int rank, std::string_view backend, int64_t limit_bytes,
              const Room& room);

}  // namespace heddle::runtime
