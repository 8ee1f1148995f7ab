// One draw on the ranks of a world against one rank: the loss, every gradient, the state after a step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "heddle/device/kernel_call.h"
#include "tests/parity/draw.h"

namespace heddle::parity {

/// The only line of a draw in fp32 in which a near tie between experts turned over: nothing else can be compared.
constexpr std::string_view kFlipped = "flipped";

/// Something done wrong on purpose by the many-rank run, to see that it is found; what is null is left right.
struct Fault {
  std::function<void(const ir::Coordinates& place, test::Batch& batch)> batch;
  std::function<void(ir::Op& op)> text;  // of the lowered program
  /// Called after each op has run, with what it has written.
  std::function<void(const ir::Listing& listing, const device::KernelCall& call)> after;
};

/// Every rank of the world calls it. On rank 0: one line for each thing that differs; elsewhere nothing.
///
/// Where a layout rounds bf16 elsewhere than one rank does, each tensor is held to the draw's tolerance and four
/// times what one rank itself is away from fp64 with the same weights: the layout rounds as often, so it is as far
/// from fp64 in another direction, and tensors of few elements need some room. The norm of all gradients, a single
/// number, is held to the distance of the gradients themselves: no two vectors' lengths differ by more.
///
/// A draw in fp32 that is beyond its tolerance runs again in fp64. What magnifies roundings there magnifies those
/// of fp32 likewise: a tensor may be 16 times as far off as fp64's worst one, which must be within 1e-10,
/// predicts.
std::vector<std::string> differences(const Draw& draw, comm::World& world, const Fault& fault = {});

/// Rank 0 gets the sum over all ranks, the others zeros.
std::vector<double> sum_to_first(comm::Communicator& all, const std::vector<double>& own);

/// The same on thread ranks.
std::vector<std::string> differences_on_threads(const Draw& draw, const Fault& fault = {});

}  // namespace heddle::parity
