#include "heddle/search/lowered_blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "heddle/base/error.h"
#include "heddle/cost/op_seconds.h"
#include "heddle/model/keys.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/plan/costs/state_cost.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

// The layers are all of the kind that most of them have by their letters.
void take_most_letters(model::ModelConfig& c) {
  const std::string letters = c.layer_pattern;
  if (letters.empty()) return;
  const auto often = [&](model::LayerKind kind) {
    return std::count(letters.begin(), letters.end(), static_cast<char>(kind));
  };
  const auto full = often(model::LayerKind::attention), window = often(model::LayerKind::window),
             recurrent = often(model::LayerKind::recurrence);
  c.layer_pattern.clear();
  if (recurrent < std::max(full, window)) {
    c.recurrence = model::Recurrence::none;
    if (c.norm_places == model::NormPlaces::mixed) c.norm_places = model::NormPlaces::after;
    model::reset_foreign_keys(c);
  }
  if (window >= std::max(full, recurrent + 1)) return;
  c.sliding_window = 0;
  c.sinks_in_windows = c.window_chunks = false;
  for (const auto size : {&model::ModelConfig::window_attention_heads, &model::ModelConfig::window_key_value_heads,
                          &model::ModelConfig::window_head_dim, &model::ModelConfig::window_q_lora_rank,
                          &model::ModelConfig::window_kv_lora_rank, &model::ModelConfig::window_qk_nope_head_dim,
                          &model::ModelConfig::window_qk_rope_head_dim, &model::ModelConfig::window_v_head_dim})
    c.*size = 0;
  c.window_rope_theta = c.window_rotary_factor = 0;
}

// The model cut to a layer of each kind that it has, the dense one first.
model::ModelConfig one_of_each(model::ModelConfig c) {
  if (c.is_hybrid()) {
    std::string kinds = c.hybrid_override_pattern;
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    c.num_hidden_layers = std::ssize(kinds);
    c.hybrid_override_pattern = std::move(kinds);
    c.num_nextn_predict_layers = 0;
    return c;
  }
  c.num_nextn_predict_layers = 0;
  c.shared_key_value_layers = c.sharing_intermediate_size = 0;
  if (c.shortcut_experts) {
    c.num_hidden_layers = 2;
    return c;
  }
  c.rotation_pattern.clear();
  take_most_letters(c);
  const bool dense = c.interleaves() ? c.has_dense_layers() : c.first_k_dense_replace > 0;
  const bool experts = c.has_experts();
  c.mlp_pattern.clear();
  c.first_k_dense_replace = dense ? 1 : 0;
  c.num_hidden_layers = (dense ? 1 : 0) + (experts ? 1 : 0);
  if (!experts) c.first_k_dense_replace = c.num_hidden_layers;
  return c;
}

plan::Plan plan_of(plan::Plan plan, const Job& j) {
  const plan::Degrees& l = j.mesh;
  plan.mesh.tp = l.tp, plan.mesh.cp = l.cp, plan.mesh.ep = l.ep, plan.mesh.etp = l.etp;
  plan.mesh.pp = 1;
  // A block costs the same on however many copies: as few as the experts' ranks need.
  const int attention = l.tp * l.cp, experts = l.ep * l.etp;
  plan.mesh.dp = experts / std::gcd(attention, experts);
  plan.parallel.exchange.replicas = replica_slots(j) > 0 ? j.exchange.replicas : 0;
  plan.parallel.context = j.shape.selects() ? model::Context::gather : j.context;
  plan.parallel.context_inner = j.context_inner;
  plan.microbatches = 1;
  plan.sequences = j.microbatch;
  plan.sequence_length = static_cast<int64_t>(j.sequence);
  plan.order.reset();
  plan.parallel.schedule = "1f1b";
  plan.parallel.chunks = plan.parallel.group = 0;
  plan.parallel.layout = "even";
  plan.evaluates = plan.predicts = false;
  plan.packed_bytes = nullptr;
  plan.memory.offload.clear();
  plan.memory.recompute =
      passes::recompute_groups(fmt::format("{}", fmt::join(recompute_words_of(j.recompute, 0, 0, 1), ",")));
  return plan;
}

// The part of prices, or of bytes that are kept, that a layer belongs to. A layer of two blocks belongs to that of
// its last, and both layers of a pair to its experts.
template <class Blocks>
auto& part_of(Blocks& of, const model::ModelConfig& model, int layer) {
  if (model.shortcut_experts) return of.moe;
  switch (static_cast<model::Block>(model.blocks_of(layer).back())) {
    case model::Block::attention: return of.attention;
    case model::Block::recurrence: return of.mamba;
    case model::Block::mlp: return of.dense;
    case model::Block::experts: break;
  }
  return of.moe;
}

enum class Cause { products, attention, traffic, tensor, exchange, context };

Cause cause_of(const ir::Op& op, const ir::Cost& cost, const plan::Degrees& l) {
  if (op.def->stream != ir::StreamKind::comm) {
    if (op.def->work == ir::Work::attention) return Cause::attention;
    return cost.flops > 0 ? Cause::products : Cause::traffic;
  }
  if (op.group == "cp" || op.group.starts_with("cp_")) return Cause::context;
  if ((op.group == "experts" || op.group == "copies") && l.ep > 1) return Cause::exchange;
  return Cause::tensor;
}

// Bytes of what F makes and I or W reads, by layer; the ends of the model are layer −1.
std::map<int, double> kept_of(const ir::Listing& listing, const ir::RowCounts& rows) {
  std::set<ir::ValueId> read_back;
  for (const ir::Op& op : listing.ops)
    if (op.phase == ir::Phase::I || op.phase == ir::Phase::W) read_back.insert(op.in.begin(), op.in.end());
  std::map<int, double> bytes;
  for (const ir::Op& op : listing.ops) {
    if (op.phase != ir::Phase::F) continue;
    for (const ir::ValueId id : op.out)
      if (id != ir::none && read_back.contains(id)) bytes[op.layer] += d(listing.bytes(id, rows));
  }
  return bytes;
}

void add(Work& to, const Work& from, double times) { to += from.scaled(times); }

// Parts of two ways of computing again, for layers of which some do it.
BlockWork mixed(const BlockWork& a, const BlockWork& b, double part_of_b) {
  BlockWork m = a;
  m.backward = a.backward.scaled(1 - part_of_b);
  add(m.backward, b.backward, part_of_b);
  return m;
}

// The numbers of a device that seconds follow from, as they lie in memory.
std::string rates_of(const cost::Accelerator& d) {
  std::vector<double> rates{d.bf16_flops, d.fp8_flops,          d.fp4_flops,
                            d.host_us,    d.memory_bytes_per_s, static_cast<double>(d.units)};
  rates.insert(rates.end(), {d.host_bytes_per_s, d.host_memory_bytes_per_s});
  const auto add_tier = [&](const cost::Tier& tier) {
    rates.insert(rates.end(), {static_cast<double>(tier.ranks), tier.bytes_per_s, tier.latency_us});
  };
  add_tier(d.inner), add_tier(d.outer);
  for (const cost::Tier& tier : d.farther) add_tier(tier);
  return {reinterpret_cast<const char*>(rates.data()), rates.size() * sizeof(double)};
}

std::string text_of(const Recompute& r) {
  return fmt::format("{}", fmt::join(recompute_words_of(r, 0, 0, 1), ","));
}

}  // namespace

std::vector<std::string> recompute_words_of(const Recompute& c, int64_t first, int64_t last, int64_t layers) {
  std::vector<std::string> words;
  const auto add = [&](std::string_view word, int64_t end) {
    if (end < first) return;
    words.push_back(first == 0 && end == layers - 1 ? std::string(word)
                                                    : fmt::format("{}:{}-{}", word, first, end));
  };
  if (c.has(GroupName::layer))
    add("layer", first + std::llround(c.every * static_cast<double>(last - first + 1)) - 1);
  if (c.has(GroupName::layer) && c.every == 1) return words;
  for (const GroupName group : {GroupName::attention, GroupName::norm, GroupName::mla_up, GroupName::activation,
                                GroupName::mlp, GroupName::moe})
    if (c.has(group)) add(word_of(group), last);
  return words;
}

cost::Group group_of(const std::string& name, const plan::Degrees& l) {
  if (name == "tp") return {l.tp, 1};
  if (name == "cp") return {l.cp, l.tp};
  if (!name.starts_with("cp_")) return {l.ep * l.etp, 1};
  const int run = std::stoi(name.substr(name.find_first_of("0123456789")));  // plan/mesh.h
  return name.starts_with("cp_in") ? cost::Group{run, l.tp} : cost::Group{l.cp / run, l.tp * run};
}

double accelerator_seconds(const Job& j, const Behaviour& b, const ir::Listing& listing, const ir::Op& op,
                           const ir::RowCounts& rows) {
  const plan::Degrees& l = j.mesh;
  if (op.def->stream == ir::StreamKind::compute) return cost::op_s(j.device, j.precision, listing, op, rows);
  if (op.def->stream != ir::StreamKind::comm) return 0;  // counts to the host: a launch
  const double sent = op.def->cost(listing, op, rows).message_bytes;
  const cost::Group group = group_of(op.group, l);
  if (group.size <= 1) return 0;
  if (op.attributes.has("by")) return cost::hop_s(j.device, b.net, group, sent);
  const double whole = sent * group.size / (group.size - 1);
  if (op.group == "experts" && op.def->moves == ir::Moves::nothing)
    return cost::all_to_all_s(j.device, b.net, group, whole);
  if (!ir::is_exchange(op.def->moves) || l.ep == 1) return cost::gather_s(j.device, b.net, group, whole);
  const model::Shape& m = j.shape;
  const double own = j.microbatch * j.sequence / l.cp / l.tp;
  return cost::exchange_s(
      j.device, b.net, {l.ep, l.etp},
      {own, whole / (own * m.computing_experts() * l.etp), static_cast<int>(std::lround(m.computing_experts())),
       static_cast<int>(m.reachable_groups()), once_a_node(j)});
}

plan::DeviceRates rates_on(const cost::Accelerator& device, cost::Precision precision) {
  constexpr double kReached = 0.7, kPerUs = 1e-6;
  plan::DeviceRates rates;
  rates.flops_per_us = kReached * kPerUs * device.flops(precision);
  rates.bytes_per_us = kReached * kPerUs * device.memory_bytes_per_s;
  rates.host_bytes_per_us = kReached * kPerUs * device.host_bytes_per_s;
  rates.processor_bytes_per_us = kReached * kPerUs * device.host_memory_bytes_per_s;
  return rates;
}

LoweredBlocks::LoweredBlocks(const model::ModelConfig& model, const plan::Plan& plan, OpSeconds seconds)
    : model_(one_of_each(model)), plan_(plan), seconds_(seconds ? std::move(seconds) : accelerator_seconds) {}

const std::string& LoweredBlocks::refusal(const Job& j) const {
  const plan::Degrees& l = j.mesh;
  const std::string key = fmt::format("{} {} {} {} {} {} {}", l.tp, l.cp, l.ep, l.etp, j.exchange.replicas,
                                      word_of(j.context), j.context_inner);
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = refusals_.try_emplace(key);
  if (!fresh) return at->second;
  try {
    Job plain = j;
    plain.recompute = {};
    plan::check(model_, plan_of(plan_, plain));
  } catch (const ConfigError& error) {
    at->second = error.what();
  }
  return at->second;
}

const std::vector<PricedResidency>& LoweredBlocks::residencies(const Job& j) const {
  const std::string key = rates_of(j.device) + std::string(cost::name_of(j.precision));
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = residencies_.try_emplace(key);
  if (fresh) at->second = residencies_on(j.device, j.precision);
  return at->second;
}

std::vector<PricedResidency> LoweredBlocks::residencies_on(const cost::Accelerator& device,
                                                           cost::Precision precision) const {
  Job alone;
  alone.sequence = d(plan_.sequence_length);
  plan::Plan plan = plan_of(plan_, alone);
  plan.rates = rates_on(device, precision);
  std::vector<PricedResidency> all;
  plan::StateCost usual;
  for (const Word<plan::MasterForm>& form : words_of(plan::MasterForm{})) {
    plan.memory.master = form.value;
    for (const plan::StateCost& cost : plan::state_costs(model_, plan)) {
      if (all.empty()) usual = cost;  // whole masters, on the device
      const double parameters = d(usual.device_bytes) / plan::state_bytes_per_parameter(plan_.update);
      PricedResidency r;
      r.optimizer = cost.residency;
      r.master = form.value;
      r.away_bytes = d(usual.device_bytes - cost.device_bytes) / parameters;
      r.host_bytes = d(cost.host_bytes) / parameters;
      // An end shorter by a hair counts as equal: the usual residency is left for room alone.
      r.end_s = std::max(0.0, (cost.end_s - usual.end_s) / parameters);
      for (const bool weights : {false, true}) {
        for (const bool gradients : {false, true}) {
          r.weights = on_host(weights), r.gradients = on_host(gradients);
          all.push_back(r);
        }
      }
    }
  }
  return all;
}

const Prices& LoweredBlocks::prices(const Job& j, const Behaviour& b) const {
  const plan::Degrees& l = j.mesh;
  const bool hides = pipeline_of(j)->outline().hides_exchange;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", j.exchange.replicas, l.tp, l.cp, l.ep, l.etp,
                  j.microbatch, text_of(j.recompute), j.recompute.every, j.imbalance, j.memory_imbalance, hides,
                  j.software.overlap_exchange, word_of(j.context), j.context_inner) +
      rates_of(j.device);
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = prices_.find(key); at != prices_.end()) return *at->second;
  }
  auto made = std::make_unique<const Prices>(priced(j, b));
  const std::lock_guard lock(mutex_);
  return *prices_.emplace(key, std::move(made)).first->second;
}

Prices LoweredBlocks::priced(const Job& j, const Behaviour& b) const {
  Prices of = priced_alike(j, b);
  Job other = j;
  other.recompute = {};
  Prices none;
  if (!(other.recompute == j.recompute)) none = priced_alike(other, b);
  const SavedBytes whole = none.saved ? none.saved->kept : of.saved->kept;
  of.saved->whole = whole;
  if (!j.recompute.has(GroupName::layer) || j.recompute.every == 1) return of;
  // Some layers compute everything again, the others nothing.
  const double part = j.recompute.every;
  for (const auto block : {&Prices::attention, &Prices::dense, &Prices::moe, &Prices::mamba})
    of.*block = mixed(none.*block, of.*block, part);
  SavedBytes& kept = of.saved->kept;
  for (const auto block : {&SavedBytes::attention, &SavedBytes::dense, &SavedBytes::moe, &SavedBytes::mamba})
    kept.*block += (whole.*block - kept.*block) * (1 - part);
  return of;
}

Prices LoweredBlocks::priced_alike(const Job& given, const Behaviour& b) const {
  Job j = given;
  if (j.recompute.has(GroupName::layer)) j.recompute.every = 1;
  const plan::Lowered lowered = plan::lower(model_, plan_of(plan_, j), "fuse_loss");
  const ir::Listing& listing = lowered.program.listings.at(0);
  const double balanced = d(plan::balanced_rows(listing));
  const auto rows_at = [&](double imbalance) { return ir::FixedRows(std::llround(balanced * imbalance)); };
  const cost::Evened evened = evened_rows(j, b, j.imbalance);
  const ir::FixedRows rows = rows_at(evened.imbalance);
  Prices of;
  of.kept_imbalance = evened_rows(j, b, j.memory_imbalance > 0 ? j.memory_imbalance : j.imbalance).imbalance;
  std::map<Work*, Hops> hops;
  const auto block_of = [&](int layer) -> BlockWork& { return layer < 0 ? of.head : part_of(of, model_, layer); };
  for (const ir::Op& op : listing.ops) {
    // Slots are seldom full, and copies have a channel of their own: their way is the closed form's.
    if (ir::once_a_step(op.phase) || op.group == "copies") continue;
    const double seconds = seconds_(j, b, listing, op, rows);
    Work w;
    w.ops = 1;
    double hop_s = 0;
    switch (cause_of(op, op.def->cost(listing, op, rows), j.mesh)) {
      case Cause::products: w.products = seconds; break;
      case Cause::attention: w.attention = seconds; break;
      case Cause::traffic: w.traffic = seconds; break;
      case Cause::tensor: w.tensor = seconds; break;
      case Cause::context: (op.attributes.has("by") ? hop_s : w.context) = seconds; break;
      case Cause::exchange: add_exchange(w, seconds, j, b); break;
    }
    BlockWork& block = block_of(op.layer);
    Work& way = op.phase == ir::Phase::F ? block.forward : block.backward;
    way += w;
    if (hop_s > 0) hops[&way].add(j.device, group_of(op.group, j.mesh), hop_s);
    if (op.phase == ir::Phase::W) block.weights += w;
  }
  for (const auto& [way, rings] : hops) way->context += rings.exposed_s(b.contention, way->attention);
  const double tokens = j.microbatch * j.sequence / j.mesh.cp;
  if (replica_slots(j) > 0 && j.mesh.ep > 1) add_copies(of.moe, evened, j, b);
  const ir::FixedRows worst = rows_at(of.kept_imbalance);
  of.saved.emplace();
  for (const auto& [layer, bytes] : kept_of(listing, worst)) {
    if (layer < 0) continue;  // the head's backward follows its forward at once
    part_of(of.saved->kept, model_, layer) += bytes / tokens;
  }
  return of;
}

}  // namespace heddle::search
