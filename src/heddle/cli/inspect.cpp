// heddle inspect: what a configuration will take, from its lowered step program alone.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/cli/account.h"
#include "heddle/cli/commands.h"
#include "heddle/device/host/host_arena.h"
#include "heddle/ir/print.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Account {
  train::RunConfig config;
  plan::Plan plan;
  std::vector<PartParameters> parts;
  std::vector<KindFlops> flops;
  std::vector<RoleBytes> roles;
  runtime::MemoryPrediction memory;
  int64_t capacity_bytes = 0;
  bool fits = true;

  PartParameters parameters(bool with_further_tokens) const {
    PartParameters sum;
    for (const PartParameters& p : parts) {
      if (!with_further_tokens && p.part.starts_with("further")) continue;
      sum.total += p.total;
      sum.active += p.active;
    }
    return sum;
  }
  KindFlops all_flops() const {
    KindFlops sum;
    for (const KindFlops& k : flops) {
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
  const PartParameters all = a.parameters(true), main = a.parameters(false);
  json["parameters"] = {{"total", all.total},
                        {"active", all.active},
                        {"without_mtp", {{"total", main.total}, {"active", main.active}}},
                        {"parts", Json::array()}};
  for (const PartParameters& p : a.parts) {
    json["parameters"]["parts"].push_back({{"part", p.part}, {"total", p.total}, {"active", p.active}});
  }
  const KindFlops flops = a.all_flops();
  json["flops_per_token"] = {{"forward", flops.forward}, {"training", flops.training}, {"kinds", Json::array()}};
  for (const KindFlops& k : a.flops) {
    json["flops_per_token"]["kinds"].push_back(
        {{"kind", k.kind}, {"forward", k.forward}, {"training", k.training}});
  }
  json["tokens_per_step"] = a.config.tokens_per_step();
  Json roles = Json::object(), at_peak = Json::array();
  for (const RoleBytes& r : a.roles) roles[std::string(name_of(r.role))] = r.bytes;
  for (const ir::Walk::Live& live : a.memory.at_peak) {
    at_peak.push_back({{"name", live.name},
                       {"role", name_of(live.role)},
                       {"stage", live.stage},
                       {"microbatch", live.microbatch},
                       {"bytes", live.bytes}});
  }
  json["memory"] = {{"persistent_bytes", a.memory.persistent_bytes},
                    {"persistent_by_role", roles},
                    {"peak_live_bytes", a.memory.peak_live_bytes},
                    {"reserved_bytes", a.memory.reserved_bytes},
                    {"capacity_bytes", a.capacity_bytes},
                    {"fits", a.fits},
                    {"at_peak", at_peak}};
  return json;
}

std::string share(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

void print_parameters(const Account& a, bool unicode) {
  const PartParameters all = a.parameters(true), main = a.parameters(false);
  Table table({{"parameters"}, {"total", Align::right}, {"share", Align::right}, {"active a token", Align::right}});
  const auto row = [&](const std::string& name, const PartParameters& p) {
    table.row({name, count_text(static_cast<double>(p.total)),
               share(static_cast<double>(p.total), static_cast<double>(all.total)),
               count_text(static_cast<double>(p.active))});
  };
  for (const PartParameters& p : a.parts) row(p.part, p);
  table.rule();
  row("all", all);
  if (main.total != all.total) row("without further tokens", main);
  fmt::print("{}\n", table.text(unicode));
}

void print_flops(const Account& a, bool unicode) {
  const KindFlops all = a.all_flops();
  Table table({{"FLOPs a token"}, {"forward", Align::right}, {"training", Align::right}, {"share", Align::right}});
  for (const KindFlops& k : a.flops) {
    table.row({k.kind, count_text(k.forward), count_text(k.training), share(k.training, all.training)});
  }
  table.rule();
  table.row({"all", count_text(all.forward), count_text(all.training), ""});
  fmt::print("{}", table.text(unicode));
  const auto tokens = static_cast<double>(a.config.tokens_per_step());
  fmt::print("a step: {} tokens, {}\n\n", grouped_text(a.config.tokens_per_step(), unicode),
             count_text(all.training * tokens, "FLOP"));
}

void print_memory(const Account& a, bool unicode) {
  constexpr size_t kShown = 16;
  Table table({{"memory"}, {"role"}, {"microbatch", Align::right}, {"bytes", Align::right}});
  for (const RoleBytes& r : a.roles) {
    table.row({"persistent", std::string(name_of(r.role)), "", bytes_text(static_cast<double>(r.bytes))});
  }
  table.rule();
  size_t shown = 0;
  int64_t rest_bytes = 0, rest = 0;
  for (const ir::Walk::Live& live : a.memory.at_peak) {
    if (ir::is_persistent(live.role)) continue;
    if (shown < kShown) {
      ++shown;
      table.row({live.name, std::string(name_of(live.role)),
                 live.microbatch < 0 ? "" : fmt::format("{}", live.microbatch),
                 bytes_text(static_cast<double>(live.bytes))});
    } else {
      ++rest;
      rest_bytes += live.bytes;
    }
  }
  if (rest > 0)
    table.row({fmt::format("{} smaller tensors", rest), "", "", bytes_text(static_cast<double>(rest_bytes))});
  table.rule();
  table.row({"persistent", "", "", bytes_text(static_cast<double>(a.memory.persistent_bytes))});
  table.row({"live at the peak", "", "", bytes_text(static_cast<double>(a.memory.peak_live_bytes))});
  table.row({"reserved", "", "", bytes_text(static_cast<double>(a.memory.reserved_bytes))});
  fmt::print("{}", table.text(unicode));
  fmt::print("{} of {}: {}\n", a.config.device.memory_bytes > 0 ? "device.memory_bytes" : "the machine's memory",
             bytes_text(static_cast<double>(a.capacity_bytes)),
             a.fits ? "it fits" : "it does not fit; train.microbatch, device.dtype or a smaller model would help");
}

}  // namespace

int inspect(const InspectOptions& options) {
  Account a;
  a.config = train::read_run_config(options.config, options.set);
  a.plan = train::plan_of(a.config);
  const plan::Lowered lowered = plan::lower(a.config.model, a.plan);
  if (options.program) {
    fmt::print("{}", ir::text_of(lowered.program));
    return kDone;
  }
  a.parts = parameters_by_part(a.config.model, lowered);
  a.flops = flops_by_kind(a.plan, lowered);
  a.roles = persistent_by_role(lowered.program, 0);
  a.capacity_bytes = a.config.device.memory_bytes > 0 ? a.config.device.memory_bytes : device::host_memory_bytes();
  a.memory = runtime::predict_memory(lowered.program, 0, a.config.device.backend);
  try {  // in the arena that training would make
    const int64_t arena = runtime::arena_bytes(lowered.program, 0, a.config.device.backend, a.capacity_bytes);
    a.memory = runtime::predict_memory(lowered.program, 0, a.config.device.backend, arena);
  } catch (const ir::OutOfMemory&) {
    a.fits = false;
  }
  if (options.json) {
    fmt::print("{}\n", json_of(a).dump(2));
    return kDone;
  }
  const bool unicode = describe_terminal(1).unicode;
  fmt::print("{}: {} layers, hidden {}, {} weights and activations, {} microbatches of {} x {} tokens\n\n",
             a.config.name, a.config.model.num_hidden_layers, a.config.model.hidden_size, name_of(a.plan.dtype),
             a.plan.microbatches, a.plan.sequences, a.plan.sequence_length);
  print_parameters(a, unicode);
  print_flops(a, unicode);
  print_memory(a, unicode);
  return kDone;
}

}  // namespace heddle::cli
