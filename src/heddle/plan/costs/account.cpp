#include "heddle/plan/costs/account.h"

#include <algorithm>

#include "heddle/ir/walk/storage.h"
#include "heddle/model/parameter_count.h"

namespace heddle::plan {

namespace {

std::string_view part_of(const model::ModelConfig& config, const model::Parameter& p) {
  using Part = model::Parameter::Part;
  if (p.layer >= config.num_hidden_layers) return "further tokens (MTP)";
  switch (p.part) {
    case Part::embedding: return "embedding";
    case Part::attention:
    case Part::convolution: return "attention";
    case Part::indexer: return "indexers";
    case Part::mlp: return "dense MLP";
    case Part::router: return "router";
    case Part::experts: return "routed experts";
    case Part::shared_experts: return "shared experts";
    case Part::norm: return "norms";
    case Part::hyper_connection: return "hyper-connections";
    case Part::head: return "output head";
    case Part::join:
    case Part::rope_table: break;
  }
  return "other";
}

std::string_view kind_of(std::string_view op) {
  if (op.starts_with("attention") || op.starts_with("recur") || op.starts_with("chosen_attention"))
    return "attention";
  if (op.starts_with("choose_") || op.starts_with("index_loss") || op == "detached_linear") return "indexers";
  if (op.starts_with("grouped_linear")) return "routed experts";
  if (op.starts_with("linear_cross_entropy")) return "output head";
  return "other products";
}

template <class T>
T& named(std::vector<T>& list, std::string T::*name, std::string_view wanted) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const T& t) { return t.*name == wanted; });
  if (at != list.end()) return *at;
  list.emplace_back().*name = wanted;
  return list.back();
}

}  // namespace

std::vector<PartParameters> parameters_by_part(const model::ModelConfig& config, const plan::Lowered& lowered) {
  std::vector<PartParameters> parts;
  for (const char* part : {"embedding", "attention", "dense MLP", "router", "routed experts", "shared experts",
                           "norms", "output head", "further tokens (MTP)"}) {
    parts.push_back({part});
  }
  for (size_t s = 0; s < lowered.parameters.size(); ++s) {
    for (const model::Parameter& p : lowered.parameters[s]) {
      const model::ParameterCount count = model::count_parameters(config, {p}, lowered.program.listings[s]);
      PartParameters& part = named(parts, &PartParameters::part, part_of(config, p));
      part.total += count.total;
      part.active += count.active;
    }
  }
  std::erase_if(parts, [](const PartParameters& p) { return p.total == 0; });
  return parts;
}

std::vector<KindFlops> flops_by_kind(const plan::Plan& plan, const plan::Lowered& lowered, int64_t microbatches) {
  const ir::StepProgram& program = lowered.program;
  const double sequence_tokens = static_cast<double>(plan.sequences * plan.sequence_length);
  std::vector<KindFlops> kinds;
  for (const char* kind : {"attention", "routed experts", "other products", "output head"}) kinds.push_back({kind});
  const auto add = [&](ir::Purpose purpose, double tokens, double KindFlops::*into) {
    for (const ir::Action& action : program.actions_of(0, purpose)) {
      const ir::Block& block = program.blocks[action.block];
      for (const ir::Step& step : block.steps) {
        if (action.microbatches[step.slot] > 0) continue;  // like the first
        const ir::Listing& listing = program.listings[block.listings[step.slot]];
        const ir::Op& op = listing.ops[step.op];
        const double a_step = ir::once_a_step(op.phase) ? static_cast<double>(microbatches) : 1;
        named(kinds, &KindFlops::kind, kind_of(op.kind())).*into +=
            op.def->cost(listing, op, ir::FixedRows()).flops / (tokens * a_step);
      }
    }
  };
  add(ir::Purpose::train, sequence_tokens, &KindFlops::training);
  add(ir::Purpose::evaluate, sequence_tokens, &KindFlops::forward);
  std::erase_if(kinds, [](const KindFlops& k) { return k.training == 0; });
  return kinds;
}

std::vector<RoleBytes> persistent_by_role(const ir::StepProgram& program, int rank, ir::Space space) {
  std::vector<RoleBytes> roles;
  for (const int s : program.listings_of(rank)) {
    const ir::Listing& listing = program.listings[s];
    for (size_t v = 0; v < listing.values.size(); ++v) {
      const ir::Value& value = listing.values[v];
      const bool elsewhere = value.space != space || value.shared_with >= 0 || value.part_of != ir::none;
      if (!ir::is_persistent(value.role) || elsewhere) continue;
      auto at = std::find_if(roles.begin(), roles.end(), [&](const RoleBytes& r) { return r.role == value.role; });
      if (at == roles.end()) at = roles.insert(roles.end(), {value.role, 0});
      at->bytes += ir::storage_bytes(listing.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()));
    }
  }
  std::sort(roles.begin(), roles.end(), [](const RoleBytes& a, const RoleBytes& b) { return a.role < b.role; });
  return roles;
}

}  // namespace heddle::plan
