// Random layouts on the ranks of an MPI job: mpirun -np N parity_mpi FIRST COUNT. Exit status 1 when something differs.
#include <cstdio>
#include <cstdlib>

#include "heddle/comm/mpi_world.h"
#include "tests/parity/parity.h"

int main(int argc, char** argv) {
  using namespace heddle;
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4;
  try {
    const std::unique_ptr<comm::World> world = comm::mpi_world({});
    bool equal = true;
    try {
      for (uint64_t number = first; number < first + count; ++number) {
        for (const std::string& line : parity::differences(parity::draw(number, 16, world->size()), *world)) {
          std::fprintf(stderr, "%s\n", line.c_str());
          equal = equal && line == parity::kFlipped;
        }
      }
    } catch (const std::exception& error) {
      world->abort(error.what());
      throw;
    }
    if (world->rank() == 0) std::printf("%llu draws on %d ranks\n", static_cast<unsigned long long>(count), world->size());
    return equal ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
