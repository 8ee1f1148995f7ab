// heddle profile: measures this machine and writes the rates that `heddle simulate` and `heddle train --mode` use.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "heddle/backends/backend.h"
#include "heddle/base/crash_note.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/command_config.h"
#include "heddle/cli/line/prose.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/machine.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/profile_file.h"
#include "heddle/session/rank_run.h"

namespace heddle::cli {

namespace {

struct ProfileOptions {
  std::string config;  // its own ops are added to the profile; empty: the machine is measured
  std::vector<std::string> set;
  std::string out;  // empty: the user's cache folder
  double seconds = 90;
  std::string device;  // a backend; empty: the configuration's, else the processor
  bool json = false;
};

using Json = nlohmann::ordered_json;

struct Rate {
  std::string kind;
  Dtype dtype;
  int threads = 1, measured = 0;
  double flops_per_s = 0, bytes_per_s = 0, least_us = 0;
};

// The best of each kind.
std::vector<Rate> rates_of(const cost::MachineProfile& profile) {
  std::map<std::tuple<std::string, Dtype, int>, Rate> rates;
  for (const cost::OpTime& t : profile.ops.all()) {
    Rate& r = rates[{t.shape.kind, t.shape.dtype, t.threads}];
    r.kind = t.shape.kind;
    r.dtype = t.shape.dtype;
    r.threads = t.threads;
    r.least_us = r.measured++ == 0 ? t.us : std::min(r.least_us, t.us);
    r.flops_per_s = std::max(r.flops_per_s, t.shape.flops / t.us * 1e6);
    r.bytes_per_s = std::max(r.bytes_per_s, t.shape.bytes / t.us * 1e6);
  }
  std::vector<Rate> list;
  for (auto& [key, rate] : rates) list.push_back(std::move(rate));
  return list;
}

void print(const cost::MachineProfile& p, const std::string& path) {
  const observe::Terminal terminal = observe::describe_terminal(1);
  observe::Table table({{"op"},
                        {"type"},
                        {"threads", observe::Align::right},
                        {"sizes", observe::Align::right},
                        {"least", observe::Align::right},
                        {"best products", observe::Align::right},
                        {"best traffic", observe::Align::right}});
  for (const Rate& r : rates_of(p)) {
    table.row({r.kind, std::string(name_of(r.dtype)), fmt::format("{}", r.threads), fmt::format("{}", r.measured),
               fmt::format("{:.1f} us", r.least_us),
               r.flops_per_s > 0 ? observe::count_text(r.flops_per_s, "FLOP/s") : "",
               observe::count_text(r.bytes_per_s, "B/s")});
  }
  say("{}\n", table.text(terminal));
  observe::Table links({{"messages over"},
                        {"ranks", observe::Align::right},
                        {"bytes a rank", observe::Align::right},
                        {"time", observe::Align::right},
                        {"rate", observe::Align::right}});
  for (const cost::LinkTime& l : p.links) {
    links.row({std::string(name_of(l.over)), fmt::format("{}", l.ranks), observe::bytes_text(l.bytes),
               fmt::format("{:.1f} us", l.us), observe::count_text(l.bytes / l.us * 1e6, "B/s")});
  }
  if (!p.links.empty()) say("{}\n", links.text(terminal));
  print_prose(fmt::format("{}, {} cores: products {} in bf16, {} in f32; copies {}", p.machine, p.cores,
                          observe::count_text(p.bf16_flops_per_s, "FLOP/s"),
                          observe::count_text(p.f32_flops_per_s, "FLOP/s"),
                          observe::count_text(p.copy_bytes_per_s, "B/s")));
  std::string together;
  for (const double speed : p.together) together += fmt::format("{}{:.2f}", together.empty() ? "" : ", ", speed);
  print_prose(fmt::format(
      "between ops {:.2f} us, to enqueue one {:.2f} us, to wake a stream {:.1f} us; speed of 1, 2, … cores at "
      "work: {}",
      p.launch_us, p.enqueue_us, p.wake_us, together));
  say("written to {}\n", path);
  if (p.others_share > 0.05) {
    say("warning: other programs took {:.0f} % of the cores meanwhile; measure again when they have ended\n",
        100 * p.others_share);
  }
}

// Returns the backend to measure; those that share the processor's memory are measured as one.
std::string backend_of(const ProfileOptions& options) {
  std::string named = options.device;
  if (named.empty() && !options.config.empty())
    named = config::read_run_config(options.config, options.set).device.backend;
  const auto& all = backends::all();
  if (named.empty()) return std::string(all.front().name);
  const bool known =
      std::any_of(all.begin(), all.end(), [&](const backends::Backend& b) { return b.name == named; });
  if (!known) config_error("--device is '{}', accepted: host, cuda", named.substr(0, 100));
  return backends::named(named).shares_memory ? std::string(all.front().name) : named;
}

cost::MachineProfile known(const std::string& path, const std::string& backend) {
  cost::MachineProfile p = planner::read_profile(path);
  if (const Support fits = planner::prices(p, backend); !fits) config_error("{}: {}", path, fits.reason);
  return p;
}

int profile(const ProfileOptions& options) {
  const CrashNotes notes;
  CrashNote note("measuring", options.config);
  const std::string backend = backend_of(options);
  const std::string path = options.out.empty() ? planner::machine_profile_path(backend) : options.out;
  if (comm::launched_by_mpi()) {  // the links of this job join a profile of the machine
    return session::run_under_mpi([&](comm::World& world) {
      const cost::Link over = world.node_of(world.size() - 1) > 0 ? cost::Link::nodes : cost::Link::node;
      const std::vector<cost::LinkTime> found = planner::measure_links(world, over, backend);
      if (world.rank() != 0) return kDone;
      cost::MachineProfile p = known(path, backend);
      std::erase_if(p.links, [&](const cost::LinkTime& l) { return l.over == over; });
      p.links.insert(p.links.end(), found.begin(), found.end());
      write_file(path, planner::profile_text(p));
      say("{} ranks over {}: {} sizes of messages added to {}\n", world.size(), name_of(over), found.size(), path);
      return kDone;
    });
  }
  cost::MachineProfile p;
  if (!options.config.empty()) {
    const config::RunConfig config = command_config(options.config, options.set);
    p = known(path, backend);
    const observe::Doing doing("measuring the ops of " + options.config);
    for (cost::OpTime& op : planner::measure_config(config)) p.ops.add(std::move(op));
  } else {
    planner::MeasureOptions measure;
    measure.seconds = options.seconds;
    measure.backend = backend;
    (void)backends::named(backend).open({});  // before any other output: an error where there is none
    say(stderr, "measuring {} for about {:.0f} s; other programs at work on it spoil the figures\n",
        backends::named(backend).shares_memory ? "this machine" : "the device of " + backend, options.seconds);
    observe::Doing doing("measuring");
    measure.progress = [&](std::string_view what, double share) {
      note.now_of(what);
      doing.now(fmt::format("measuring {}", what), share);
    };
    p = planner::measure_machine(measure);
  }
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::error_code ignored;  // writing says what is wrong
    std::filesystem::create_directories(folder, ignored);
  }
  write_file(path, planner::profile_text(p));
  if (options.json) {
    Json json{{"profile", path},
              {"machine", p.machine},
              {"device", p.backend},
              {"date", p.date},
              {"cores", p.cores},
              {"bf16_flops_per_s", p.bf16_flops_per_s},
              {"f32_flops_per_s", p.f32_flops_per_s},
              {"copy_bytes_per_s", p.copy_bytes_per_s},
              {"host_copy_bytes_per_s", p.host_copy_bytes_per_s},
              {"launch_us", p.launch_us},
              {"enqueue_us", p.enqueue_us},
              {"wake_us", p.wake_us},
              {"oversleep_us", p.oversleep_us},
              {"together", p.together},
              {"ops", p.ops.all().size()},
              {"links", p.links.size()}};
    say("{}\n", json.dump(2));
  } else {
    print(p, path);
  }
  return kDone;
}

}  // namespace

void add_profile(Commands& all) {
  auto [command, options] = add_command(
      all, "profile", "Measure this machine: products, traffic, messages; under mpirun its links", profile);
  command.option("CONFIG", options.config,
                 "Add the ops of this configuration, each by itself, to the machine's profile");
  add_set(command, options.set);
  command.option("--out", options.out, "The profile; else machine.json in the user's cache folder").called("FILE");
  command.option("--seconds", options.seconds, "Approximate duration of the measurement").from(1.0, 3600.0);
  command
      .option("--device", options.device, "Device to measure: host or cuda; else CONFIG's device.backend, or host")
      .called("NAME");
  add_json(command, options.json);
}

}  // namespace heddle::cli
