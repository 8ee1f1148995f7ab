// heddle probe: tries the hosts of an MPI job, a rank on each.
#include "heddle/job/hosts/probe.h"

#include "heddle/base/error.h"
#include "heddle/base/failure.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/text/continue_text.h"

namespace heddle::cli {

namespace {

struct ProbeOptions {
  bool json = false;
};

void print(const std::vector<job::HostProbe>& probes, const std::vector<job::BadHost>& bad) {
  observe::Table table({{"rank", observe::Align::right},
                        {"host"},
                        {"product", observe::Align::right},
                        {"slowest transfer", observe::Align::right},
                        {""}});
  for (size_t p = 0; p < probes.size(); ++p) {
    const auto found = std::find_if(bad.begin(), bad.end(), [&](const job::BadHost& b) { return b.place == p; });
    const std::vector<double>& transfers = probes[p].transfer_s;
    table.row({fmt::format("{}", p), session::terminal_text(probes[p].host),
               observe::duration_text(probes[p].product_s),
               observe::duration_text(*std::max_element(transfers.begin(), transfers.end())),
               found == bad.end() ? "" : found->why});
  }
  say("{}\n", table.text(observe::describe_terminal(1)));
}

int probe(const ProbeOptions& options) {
  if (!comm::launched_by_mpi())
    config_error("probe: no launcher has started this; mpirun or srun starts it, a rank on each host");
  return session::run_under_mpi([&](comm::World& world) {
    const std::vector<job::HostProbe> probes = job::probe_hosts(world);
    if (world.rank() != 0) return kDone;
    const std::vector<job::BadHost> bad = job::bad_hosts(probes);
    if (options.json) {
      say("{}\n", job::probe_json(probes, bad));
    } else {
      print(probes, bad);
    }
    return bad.empty() ? kDone : kFailed;
  });
}

}  // namespace

void add_probe(Commands& all) {
  auto [command, options] = add_command(
      all, "probe",
      "Try the hosts of an MPI job: a product's bits and time, transfers; exit status 1 where one is bad", probe);
  add_json(command, options.json);
}

}  // namespace heddle::cli
