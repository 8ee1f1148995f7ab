// What every world has to do, whatever carries its bytes: each case is run by all ranks of a world at once and
// throws where something is wrong. world_test.cpp runs them on threads, mpi_program.cpp under mpirun.
#pragma once

#include <vector>

#include "heddle/comm/world.h"

namespace heddle::comm {

struct WorldCase {
  const char* name;
  void (*run)(World& world, uint64_t seed);
};

const std::vector<WorldCase>& world_cases();

/// The exchange of rows of experts, in every topology (experts_case.cpp).
void experts(World& world, uint64_t seed);

}  // namespace heddle::comm
