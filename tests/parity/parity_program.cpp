// Random layouts on the ranks of an MPI job, each number in fp64 or fp32 and in bf16: mpirun -np N parity_mpi FIRST
// COUNT; and the weights of exact sums on four ranks against one, in bf16: mpirun -np 4 parity_mpi exact. Exit
// status 1 when something differs.
#include <cstdio>
#include <cstdlib>

#include "heddle/comm/mpi_world.h"
#include "tests/parity/exact_run.h"
#include "tests/parity/parity.h"

namespace {

bool exact_sums_agree(heddle::comm::World& world) {
  using namespace heddle;
  std::map<std::string, std::vector<double>> expected;
  const parity::ExactSetting plain{.dtype = Dtype::bf16, .backend = "host", .depths = 1};
  if (world.rank() == 0) expected = parity::train_on_threads({}, plain);
  struct Layout {
    plan::Degrees mesh;
    std::string topology, layout = "even";
  };
  const std::vector<Layout> layouts{{{.dp = 4}, "plain"},
                                    {{.dp = 4, .ep = 4}, "rank"},
                                    {{.dp = 4, .ep = 2}, "auto"},
                                    {{.dp = 2, .pp = 2, .ep = 2}, "plain"},
                                    {{.dp = 2, .pp = 2, .ep = 2}, "plain", "Etttm|L"}};
  bool equal = true;
  for (const auto& [mesh, topology, layout] : layouts) {
    parity::ExactSetting setting = plain;
    setting.topology = topology;
    setting.layout = layout;
    const auto found = parity::train_on(world, mesh, setting);
    if (world.rank() != 0 || found == expected) continue;
    std::fprintf(stderr, "exact sums: dp %d ep %d pp %d %s %s gives other weights\n", mesh.dp, mesh.ep, mesh.pp,
                 topology.c_str(), layout.c_str());
    equal = false;
  }
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace heddle;
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4;
  try {
    const std::unique_ptr<comm::World> world = comm::mpi_world({});
    bool equal = true;
    try {
      if (argc > 1 && std::string_view(argv[1]) == "exact") return exact_sums_agree(*world) ? 0 : 1;
      const auto hold = [&](const parity::Draw& d) {
        for (const std::string& line : parity::differences(d, *world)) {
          std::fprintf(stderr, "%s\n", line.c_str());
          equal = equal && line == parity::kFlipped;
        }
      };
      for (uint64_t number = first; number < first + count; ++number) {
        hold(parity::draw(number, 16, world->size()));
        hold(parity::draw_bf16(number, 16, parity::Rounding::same, world->size()));
      }
    } catch (const std::exception& error) {
      world->abort(error.what());
      throw;
    }
    if (world->rank() == 0)
      std::printf("%llu draws on %d ranks\n", static_cast<unsigned long long>(count), world->size());
    return equal ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
