// One draw on the ranks of a world against one rank: the loss, every gradient, the state after a step.
#pragma once

#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "tests/parity/draw.h"

namespace heddle::parity {

/// The only line of a draw in fp32 in which a near tie between experts turned over: nothing else can be compared.
constexpr std::string_view kFlipped = "flipped";

/// Every rank of the world calls it. On rank 0: one line for each thing that differs; elsewhere nothing. `scale_of`
/// multiplies the loss scales of the many-rank run (1: right), to see that a wrong factor is found.
std::vector<std::string> differences(const Draw& draw, comm::World& world, double scale_of = 1);

/// Rank 0 gets the sum over all ranks, the others zeros.
std::vector<double> sum_to_first(comm::Communicator& all, const std::vector<double>& own);

/// The same on thread ranks.
std::vector<std::string> differences_on_threads(const Draw& draw, double scale_of = 1);

}  // namespace heddle::parity
