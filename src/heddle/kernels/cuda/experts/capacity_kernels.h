// Choices of a microbatch that keep a place with their expert. T tokens, k experts a token, R = T·k rows sorted by
// (expert, token), E experts of C places. See ops/experts/capacity.cpp.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kPlaceThreads = 128, kDropThreads = 512;
constexpr int64_t kMostRowsOfExpert = (1 << 21) - 1;  // three counts of them share a word

struct CapacityArgs {
  const float* g_Tk;
  const int32_t *row_of_Tk, *token_of_R, *offsets;
  float* kept_Tk;
  int32_t *place_of_Tk, *token_of_EC;
  int32_t *local_offsets, *counts;  // constants: P + 1, and `each` of C
  uint32_t* order_R;                // scratch: gates as numbers in their order, then places or −1
  int64_t R, E, C, P, sources, each;
};
/// The orders of gates, by row; the places of each expert's rows (a block an expert); those of slots.
HEDDLE_KERNEL void orders_of_gates(CapacityArgs args);
HEDDLE_KERNEL void places_of_rows(CapacityArgs args);
HEDDLE_KERNEL void places_of_slots(CapacityArgs args);

struct KeptGradArgs {
  const float* dkept_R;
  const int32_t* place_of_R;
  float* dg_R;
  int64_t R;
};
HEDDLE_KERNEL void gradients_of_kept(KeptGradArgs args);

struct DroppedArgs {
  const int32_t* place_of_R;
  double* sum;
  int64_t R;
  bool overwrite;
};
/// One block.
HEDDLE_KERNEL void count_dropped(DroppedArgs args);

}  // namespace heddle::kernels::cuda
