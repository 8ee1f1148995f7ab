// heddle inspect: what a configuration will take, from its lowered step program alone.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "heddle/backends/backend.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/inspect/inspect_memory.h"
#include "heddle/cli/inspect/inspect_shape.h"
#include "heddle/cli/line/command_config.h"
#include "heddle/cli/line/prose.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/ir/print.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/plan/costs/account.h"
#include "heddle/plan/costs/state_cost.h"
#include "heddle/planner/budget/budget_text.h"
#include "heddle/planner/machine.h"
#include "heddle/planner/rank_memory.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

struct InspectOptions {
  std::string config;
  std::vector<std::string> set;  // key=value
  bool program = false;
  std::string after;  // a pass: the program as it left it
  int64_t cache = 0;  // for so many texts
  bool passes = false;
  bool json = false;
  std::string html;   // file
  std::string model;  // a published model by name, in place of a configuration
};

using Json = nlohmann::ordered_json;

// The ranks of one pipeline rank, with the parameters of one of them.
struct RankClass : planner::RankMemory {
  int64_t parameters = 0;
};

struct Account {
  config::RunConfig config;
  plan::Plan plan;
  std::vector<plan::PartParameters> parts;
  std::vector<plan::KindFlops> flops;
  std::vector<plan::RoleBytes> roles, host_roles;  // the rank's that needs most memory; likewise below
  std::vector<RankClass> classes;
  size_t most = 0;  // its class
  std::vector<ir::Walk::Live> at_peak;
  int64_t capacity_bytes = 0;
  std::vector<plan::StateCost> homes;  // homes of optimizer state, where it isn't simply on the device
  int64_t split = 0, whole = 0;        // parameters by what their masters are kept as, where they are to be split

  const RankClass& largest() const { return classes.at(most); }
  bool fits() const {
    return std::all_of(classes.begin(), classes.end(), [](const RankClass& c) { return c.fits; });
  }

  plan::PartParameters parameters(bool with_further_tokens) const {
    plan::PartParameters sum;
    for (const plan::PartParameters& p : parts) {
      if (!with_further_tokens && p.part.starts_with("further")) continue;
      sum.total += p.total;
      sum.active += p.active;
    }
    return sum;
  }
  plan::KindFlops all_flops() const {
    plan::KindFlops sum;
    for (const plan::KindFlops& k : flops) {
      sum.forward += k.forward;
      sum.training += k.training;
    }
    return sum;
  }
};

Json json_of(const Account& a) {
  Json json;
  json["name"] = a.config.name;
  json["dtype"] = name_of(a.plan.dtype);
  const plan::PartParameters all = a.parameters(true), main = a.parameters(false);
  json["parameters"] = {{"total", all.total},
                        {"active", all.active},
                        {"without_mtp", {{"total", main.total}, {"active", main.active}}},
                        {"parts", Json::array()}};
  for (const plan::PartParameters& p : a.parts) {
    json["parameters"]["parts"].push_back({{"part", p.part}, {"total", p.total}, {"active", p.active}});
  }
  const plan::KindFlops flops = a.all_flops();
  json["flops_per_token"] = {{"forward", flops.forward}, {"training", flops.training}, {"kinds", Json::array()}};
  for (const plan::KindFlops& k : a.flops) {
    json["flops_per_token"]["kinds"].push_back(
        {{"kind", k.kind}, {"forward", k.forward}, {"training", k.training}});
  }
  const plan::Degrees& mesh = a.plan.mesh;
  json["mesh"] = {{"ranks", mesh.ranks()}, {"tp", mesh.tp}, {"cp", mesh.cp},  {"dp", mesh.dp},
                  {"pp", mesh.pp},         {"ep", mesh.ep}, {"etp", mesh.etp}};
  json["ranks"] = Json::array();
  for (const RankClass& c : a.classes) {
    json["ranks"].push_back({{"pipeline_rank", c.pipeline_rank},
                             {"ranks", c.ranks},
                             {"parameters", c.parameters},
                             {"persistent_bytes", c.memory.persistent_bytes},
                             {"peak_live_bytes", c.memory.peak_live_bytes},
                             {"reserved_bytes", c.memory.reserved_bytes},
                             {"fits", c.fits}});
  }
  json["tokens_per_step"] = a.config.train.global_batch * a.config.train.sequence_length;
  Json roles = Json::object(), host_roles = Json::object(), at_peak = Json::array();
  for (const plan::RoleBytes& r : a.roles) roles[std::string(name_of(r.role))] = r.bytes;
  for (const plan::RoleBytes& r : a.host_roles) host_roles[std::string(name_of(r.role))] = r.bytes;
  for (const ir::Walk::Live& live : a.at_peak) {
    at_peak.push_back({{"name", live.name},
                       {"role", name_of(live.role)},
                       {"listing", live.listing},
                       {"microbatch", live.microbatch},
                       {"bytes", live.bytes}});
  }
  json["memory"] = {{"persistent_bytes", a.largest().memory.persistent_bytes},
                    {"persistent_by_role", roles},
                    {"peak_live_bytes", a.largest().memory.peak_live_bytes},
                    {"reserved_bytes", a.largest().memory.reserved_bytes},
                    {"host_persistent_by_role", host_roles},
                    {"host_peak_live_bytes", a.largest().memory.host_peak_live_bytes},
                    {"host_reserved_bytes", a.largest().memory.host_reserved_bytes},
                    {"capacity_bytes", a.capacity_bytes},
                    {"fits", a.fits()},
                    {"at_peak", at_peak}};
  if (!a.homes.empty()) json["optimizer_homes"] = Json::array();
  for (const plan::StateCost& cost : a.homes) {
    json["optimizer_homes"].push_back({{"home", word_of(cost.residency)},
                                       {"device_bytes", cost.device_bytes},
                                       {"host_bytes", cost.host_bytes},
                                       {"end_seconds", cost.end_s}});
  }
  if (a.split + a.whole > 0) json["masters"] = {{"split", a.split}, {"full", a.whole}};
  return json;
}

std::string share(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

void print_parameters(const Account& a, const observe::Terminal& terminal) {
  const plan::PartParameters all = a.parameters(true), main = a.parameters(false);
  observe::Table table({{"parameters"},
                        {"total", observe::Align::right},
                        {"share", observe::Align::right},
                        {"active a token", observe::Align::right}});
  const auto row = [&](const std::string& name, const plan::PartParameters& p) {
    table.row({name, observe::count_text(static_cast<double>(p.total)),
               share(static_cast<double>(p.total), static_cast<double>(all.total)),
               observe::count_text(static_cast<double>(p.active))});
  };
  for (const plan::PartParameters& p : a.parts) row(p.part, p);
  table.rule();
  row("all", all);
  if (main.total != all.total) row("without further tokens", main);
  say("{}\n", table.text(terminal));
}

void print_flops(const Account& a, const observe::Terminal& terminal) {
  const plan::KindFlops all = a.all_flops();
  observe::Table table({{"FLOPs a token"},
                        {"forward", observe::Align::right},
                        {"training", observe::Align::right},
                        {"share", observe::Align::right}});
  for (const plan::KindFlops& k : a.flops) {
    table.row(
        {k.kind, observe::count_text(k.forward), observe::count_text(k.training), share(k.training, all.training)});
  }
  table.rule();
  table.row({"all", observe::count_text(all.forward), observe::count_text(all.training), ""});
  say("{}", table.text(terminal));
  const auto tokens = static_cast<double>(a.config.train.global_batch * a.config.train.sequence_length);
  say("a step: {} tokens, {}\n\n",
      observe::grouped_text(a.config.train.global_batch * a.config.train.sequence_length),
      observe::count_text(all.training * tokens, "FLOP"));
}

void print_ranks(const Account& a, const observe::Terminal& terminal) {
  observe::Table table({{"pipeline rank"},
                        {"ranks", observe::Align::right},
                        {"parameters each", observe::Align::right},
                        {"persistent", observe::Align::right},
                        {"live at the peak", observe::Align::right},
                        {"reserved", observe::Align::right}});
  for (const RankClass& c : a.classes) {
    table.row({fmt::format("{}", c.pipeline_rank), fmt::format("{}", c.ranks),
               observe::count_text(static_cast<double>(c.parameters)),
               observe::bytes_text(static_cast<double>(c.memory.persistent_bytes)),
               observe::bytes_text(static_cast<double>(c.memory.peak_live_bytes)),
               observe::bytes_text(static_cast<double>(c.memory.reserved_bytes))});
  }
  say("{}\n{}", plan::text_of(a.plan.mesh), table.text(terminal));
  if (a.plan.mesh.ep * a.plan.mesh.etp > 1) say("with even rows for the experts of each rank\n");
  say("\n");
}

void print_memory(const Account& a, const observe::Terminal& terminal) {
  constexpr size_t kShown = 16;
  const std::string of = a.plan.ranks() > 1 ? fmt::format(" of rank {}", a.largest().rank) : "";
  observe::Table table(
      {{"memory" + of}, {"role"}, {"microbatch", observe::Align::right}, {"bytes", observe::Align::right}});
  for (const plan::RoleBytes& r : a.roles) {
    table.row({"persistent", std::string(name_of(r.role)), "", observe::bytes_text(static_cast<double>(r.bytes))});
  }
  for (const plan::RoleBytes& r : a.host_roles) {
    table.row({"persistent, on the host", std::string(name_of(r.role)), "",
               observe::bytes_text(static_cast<double>(r.bytes))});
  }
  table.rule();
  size_t shown = 0;
  int64_t rest_bytes = 0, rest = 0;
  for (const ir::Walk::Live& live : a.at_peak) {
    if (ir::is_persistent(live.role)) continue;
    if (shown < kShown) {
      ++shown;
      table.row({live.name, std::string(name_of(live.role)),
                 live.microbatch < 0 ? "" : fmt::format("{}", live.microbatch),
                 observe::bytes_text(static_cast<double>(live.bytes))});
    } else {
      ++rest;
      rest_bytes += live.bytes;
    }
  }
  if (rest > 0)
    table.row(
        {fmt::format("{} smaller tensors", rest), "", "", observe::bytes_text(static_cast<double>(rest_bytes))});
  table.rule();
  table.row({"persistent", "", "", observe::bytes_text(static_cast<double>(a.largest().memory.persistent_bytes))});
  table.row(
      {"live at the peak", "", "", observe::bytes_text(static_cast<double>(a.largest().memory.peak_live_bytes))});
  table.row({"reserved", "", "", observe::bytes_text(static_cast<double>(a.largest().memory.reserved_bytes))});
  if (const int64_t there = a.largest().memory.host_reserved_bytes; there > 0) {
    table.row({"reserved on the host", "", "", observe::bytes_text(static_cast<double>(there))});
  }
  say("{}", table.text(terminal));
  if (const backends::Backend& backend = backends::named(a.config.device.backend); backend.kernels().empty())
    print_prose(fmt::format("without the scratch of {}'s kernels: {}", backend.name, backend.available().reason));
  print_prose(fmt::format(
      "{} of {}: {}",
      a.config.device.memory_bytes > 0 ? "device.memory_bytes"
      : a.plan.ranks() > 1             ? "a rank's share of the machine's memory, as threads,"
                                       : "the machine's memory",
      observe::bytes_text(static_cast<double>(a.capacity_bytes)),
      a.fits() ? "it fits" : "it does not fit; train.microbatch, device.dtype or a smaller model would help"));
}

void print_state(const Account& a, const observe::Terminal& terminal) {
  if (!a.homes.empty()) {
    observe::Table table({{"memory.optimizer"},
                          {"on the device", observe::Align::right},
                          {"on the host", observe::Align::right},
                          {"end of a step", observe::Align::right}});
    for (const plan::StateCost& cost : a.homes) {
      table.row({fmt::format("{}{}", word_of(cost.residency),
                             cost.residency == a.plan.memory.optimizer ? ", chosen" : ""),
                 observe::bytes_text(static_cast<double>(cost.device_bytes)),
                 observe::bytes_text(static_cast<double>(cost.host_bytes)), observe::duration_text(cost.end_s)});
    }
    say("\n{}", table.text(terminal));
  }
  if (a.split + a.whole == 0) return;
  print_prose(
      a.split == 0
          ? "memory.master \"split\" saves nothing here: no weight is bf16 in rows, nor has it replicas"
          : fmt::format("memory.master \"split\" keeps the masters of {} parameters of a rank as 2 bytes, and "
                        "{} as they are",
                        observe::count_text(static_cast<double>(a.split)),
                        observe::count_text(static_cast<double>(a.whole))));
}

// Counts on the ranks of a pipeline rank: trained parameters whose masters are split, and the others.
std::pair<int64_t, int64_t> masters_of(const plan::Lowered& lowered, int pipeline_rank) {
  const ir::Listing& listing = lowered.program.listings[pipeline_rank];
  std::pair<int64_t, int64_t> count;
  for (const model::Parameter& p : lowered.parameters[pipeline_rank]) {
    if (!p.trained) continue;
    const ir::ValueId rest = listing.find("rest." + p.name), moment = listing.find("m." + p.name);
    (rest != ir::none ? count.first : count.second) += listing.elements(moment, ir::FixedRows());
  }
  return count;
}

// Number of parameters that are trained, or were until they were frozen.
int64_t parameters_of(const plan::Lowered& lowered, int pipeline_rank) {
  int64_t sum = 0;
  for (const model::Parameter& p : lowered.parameters[pipeline_rank]) {
    using Start = model::Parameter::Start;
    if (!p.balances && p.start != Start::rope_table && p.start != Start::hashed_experts)
      sum += lowered.program.listings[pipeline_rank].elements(p.value, ir::FixedRows());
  }
  return sum;
}

void print_passes(const plan::Lowered& lowered, bool as_json) {
  Json json = Json::array();
  observe::Table table({{"pass"},
                        {"of"},
                        {"ops before", observe::Align::right},
                        {"ops after", observe::Align::right},
                        {"ms", observe::Align::right}});
  for (const plan::PassNote& note : lowered.passes) {
    const std::string_view purpose = ir::name_of(note.purpose);
    json.push_back({{"pass", note.name},
                    {"purpose", purpose},
                    {"ops_before", note.ops_before},
                    {"ops_after", note.ops_after},
                    {"seconds", note.seconds}});
    table.row({std::string(note.name), std::string(purpose), fmt::format("{}", note.ops_before),
               fmt::format("{}", note.ops_after), fmt::format("{:.2f}", note.seconds * 1e3)});
  }
  say("{}", as_json ? json.dump(2) + "\n" : table.text(observe::describe_terminal(1)));
}

int inspect(const InspectOptions& options) {
  if (!options.model.empty()) return inspect_shape(options.model, options.json);
  if (options.config.empty()) config_error("inspect: neither CONFIG nor --model (see heddle inspect --help)");
  Account a;
  command_config(options.config, options.set);
  planner::WithinBudget read = planner::read_within_budget(options.config, options.set);
  a.config = std::move(read.config);
  a.plan = train::plan_of(a.config);
  a.plan.cached_sequences = options.cache;
  std::optional<observe::Doing> doing("writing the program");
  const plan::Lowered lowered = plan::lower(a.config.model, a.plan, options.after);
  if (options.program || options.passes) doing.reset();
  if (options.program) {
    say("{}", ir::text_of(lowered.program));
    return kDone;
  }
  if (options.passes) {
    print_passes(lowered, options.json);
    return kDone;
  }
  doing->now("counting memory");
  {
    plan::Plan alone = a.plan.on_one_rank();  // the whole model, and a step's work
    alone.microbatches = 1;                   // one of all that are alike
    std::optional<plan::Lowered> written;
    if (a.plan.ranks() > 1) written = plan::lower(a.config.model, alone);
    const plan::Lowered& whole = written ? *written : lowered;
    a.parts = plan::parameters_by_part(a.config.model, whole);
    a.flops = plan::flops_by_kind(alone, whole, int64_t{a.plan.microbatches} * a.plan.mesh.dp);
  }
  a.capacity_bytes = train::memory_limit_of(a.config, {.memory = a.plan.ranks()});
  for (planner::RankMemory& rank :
       planner::memory_of_ranks(a.plan, lowered, a.config.device.backend, a.capacity_bytes))
    a.classes.push_back({std::move(rank), parameters_of(lowered, rank.pipeline_rank)});
  for (size_t c = 1; c < a.classes.size(); ++c) {
    if (a.classes[c].memory.reserved_bytes > a.largest().memory.reserved_bytes) a.most = c;
  }
  a.at_peak = runtime::live_at_peak(lowered.program, a.largest().rank, a.config.device.backend,
                                    a.largest().memory.peak_live_bytes);
  a.roles = plan::persistent_by_role(lowered.program, a.largest().rank);
  a.host_roles = plan::persistent_by_role(lowered.program, a.largest().rank, ir::Space::host);
  const InspectedMemory memory(a.config, a.plan, lowered, a.largest());
  if (!options.html.empty()) memory.write_page(options.html, static_cast<double>(a.capacity_bytes));
  if (config::read_run_config(options.config, options.set).plan.memory.optimizer != plan::StateResidency::device)
    a.homes = plan::state_costs(a.config.model, a.plan);
  if (a.plan.memory.master == plan::MasterForm::split)
    std::tie(a.split, a.whole) = masters_of(lowered, a.largest().pipeline_rank);
  doing.reset();
  if (options.json) {
    Json json = json_of(a);
    json["memory"]["over_step"] = memory.json();
    if (read.choice) json["budget"] = planner::json_of(*read.choice, a.config.plan.memory.budget_bytes);
    say("{}\n", json.dump(2));
    return kDone;
  }
  const observe::Terminal terminal = observe::describe_terminal(1);
  print_prose(fmt::format(
      "{}: {} layers, hidden {}, {} weights and activations, {} microbatches{} of {} x {} tokens", a.config.name,
      a.config.model.num_hidden_layers, a.config.model.hidden_size, name_of(a.plan.dtype), a.plan.microbatches,
      a.plan.mesh.dp > 1 ? " a data rank" : "", a.plan.sequences, a.plan.sequence_length));
  say("\n");
  print_parameters(a, terminal);
  print_flops(a, terminal);
  if (a.plan.ranks() > 1) print_ranks(a, terminal);
  print_memory(a, terminal);
  if (read.choice) say("\n{}", planner::waterfall_text(*read.choice, a.config.plan.memory.budget_bytes, terminal));
  print_state(a, terminal);
  memory.print(terminal);
  if (!options.html.empty()) say("\npage: {}\n", options.html);
  return kDone;
}

}  // namespace

void add_inspect(Commands& all) {
  auto [command, options] =
      add_command(all, "inspect", "Parameters, FLOPs and memory of a configuration; nothing is allocated", inspect);
  command.option("CONFIG", options.config, "The configuration file; - is the standard input");
  command.option("--model", options.model, "In place of CONFIG: a published model by name, such as DeepSeek-V3")
      .excludes("CONFIG");
  add_set(command, options.set);
  command.option("--program", options.program, "Print the step program");
  command
      .option("--after", options.after,
              "With --program: the program after this pass, such as recompute (--passes lists them)")
      .needs("--program");
  command.option("--cache", options.cache, "With the cache of N texts, as `heddle generate` has it").from(1, 4096);
  command
      .option("--passes", options.passes,
              "List the passes that write the program, with the ops that each removed and added")
      .excludes("--program");
  command.option("--html", options.html, "Write the memory over a step as a page to this file").called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
