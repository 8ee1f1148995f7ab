#include "heddle/plan/refusals.h"

#include <algorithm>

#include "heddle/passes/op_groups.h"

namespace heddle::plan {

namespace {

// Two switches that don't go together: which are set, why not, and what to set instead. The message is
// "WHAT: WHY; REMEDY goes with it".
struct Pair {
  bool (*holds)(const Choices& choices);
  std::string (*what)(const Choices& choices);  // keys with their values
  const char* why;
  std::string remedy;
};

bool replicas(const Choices& c) { return c.parallel.exchange.replicas != 0; }
bool migrates(const Choices& c) { return c.parallel.exchange.migrates(); }
bool capacity(const Choices& c) { return c.parallel.exchange.capacity_factor > 0; }
bool makes_room(const Choices& c) { return c.parallel.exchange.room_factor > 0; }
// True if what a layer keeps depends on the rows that came.
bool keeps_by_rows(const Choices& c) {
  return std::any_of(c.memory.recompute.begin(), c.memory.recompute.end(),
                     [](const passes::OpGroup& group) { return group.above > 0; });
}
bool state_elsewhere(const Choices& c) { return c.memory.optimizer != StateResidency::device; }
bool averages(const Choices& c) { return c.update.average_decay > 0; }
// Rows of experts go over ranks otherwise than one by one.
bool sums_on_the_way(const Choices& c) {
  return c.mesh.ep > 1 && c.parallel.exchange.topology != ir::Topology::plain;
}

std::string migrate_key(const Choices& c) {
  return fmt::format("moe.migrate_every = {}", c.parallel.exchange.migrate_every);
}
std::string replicas_key(const Choices& c) {
  const int slots = c.parallel.exchange.replicas;
  return slots == model::Dispatcher::kReplicasByCost ? "moe.replicas = \"auto\""
                                                     : fmt::format("moe.replicas = {}", slots);
}
std::string experts_key(const Choices& c) { return replicas(c) ? replicas_key(c) : migrate_key(c); }
std::string outlier_key(const Choices& c) {
  return c.update.skip_loss_above > 0 ? fmt::format("train.skip_loss_above = {}", c.update.skip_loss_above)
                                      : fmt::format("train.skip_norm_above = {}", c.update.skip_norm_above);
}
std::string average_key(const Choices& c) {
  return fmt::format("train.average_decay = {}", c.update.average_decay);
}
std::string capacity_key(const Choices& c) {
  return fmt::format("moe.capacity_factor = {}", c.parallel.exchange.capacity_factor);
}
std::string room_key(const Choices& c) {
  return fmt::format("moe.room_factor = {}", c.parallel.exchange.room_factor);
}
std::string homes_key(const Choices& c) {
  return fmt::format("memory.optimizer = \"{}\"{}", word_of(c.memory.optimizer),
                     c.memory.weights.empty() ? "" : " and memory.weights on the host");
}

constexpr const char* kOneByOne =
    "under train.exact_sums rows of experts return one by one, and this exchange sums a token's rows by where they "
    "were";

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all{
      {[](const Choices& c) { return replicas(c) && capacity(c); },
       [](const Choices& c) { return fmt::format("{} with {}", replicas_key(c), capacity_key(c)); },
       "a capacity gives every expert as many rows, so that none is hot", "moe.replicas = \"off\""},
      {[](const Choices& c) { return makes_room(c) && capacity(c); },
       [](const Choices& c) { return fmt::format("{} with {}", room_key(c), capacity_key(c)); },
       "a capacity gives every expert as many rows, which are known ahead", "moe.room_factor = 0"},
      {[](const Choices& c) { return makes_room(c) && keeps_by_rows(c); },
       [](const Choices& c) {
         return fmt::format("{} with memory.recompute = \"{}\"", room_key(c), passes::text_of(c.memory.recompute));
       },
       "limits of rows ask for counts that the host has read", "memory.recompute without limits"},
      {[](const Choices& c) { return c.device.expert_product == ProductWay::batched && !capacity(c); },
       [](const Choices& c) { return fmt::format("moe.product = \"batched\" with {}", capacity_key(c)); },
       "it wants as many rows for each expert, as a moe.capacity_factor above 0 gives them",
       "moe.product = \"auto\""},
      {[](const Choices& c) { return (replicas(c) || migrates(c)) && c.exact_sums && sums_on_the_way(c); },
       [](const Choices& c) {
         return fmt::format("{} with parallel.exchange = \"{}\"", experts_key(c),
                            word_of(c.parallel.exchange.topology));
       },
       kOneByOne, "parallel.exchange = \"plain\""},
      {[](const Choices& c) { return migrates(c) && (state_elsewhere(c) || !c.memory.weights.empty()); },
       [](const Choices& c) { return fmt::format("{} with {}", migrate_key(c), homes_key(c)); },
       "experts take their state from device to device",
       "memory.optimizer = \"device\", memory.weights = \"device\""},
      {[](const Choices& c) { return migrates(c) && capacity(c); },
       [](const Choices& c) { return fmt::format("{} with {}", migrate_key(c), capacity_key(c)); },
       "a capacity gives every expert as many rows, so that no rank is better than another",
       "moe.migrate_every = \"off\""},
      {[](const Choices& c) { return c.device.fp8 != passes::Fp8::off && c.exact_sums; },
       [](const Choices& c) {
         return fmt::format("device.fp8 = \"{}\" with train.exact_sums", word_of(c.device.fp8));
       },
       "gradients are rounded by blocks of rows, which experts on several ranks cut elsewhere than on one",
       "device.fp8 = \"off\""},
      {[](const Choices& c) { return c.device.fp8 != passes::Fp8::off && c.lora.rank > 0; },
       [](const Choices& c) {
         return fmt::format("device.fp8 = \"{}\" with lora.rank = {}", word_of(c.device.fp8), c.lora.rank);
       },
       "eight bits are for weights that are trained, and adapters freeze them", "device.fp8 = \"off\""},
      {[](const Choices& c) { return c.update.skip_loss_above > 0 && c.exact_sums; },
       [](const Choices& c) { return outlier_key(c) + " with train.exact_sums"; },
       "each layout rounds the last bit of the loss its own way (train.skip_norm_above has no such bit)",
       "train.skip_loss_above = 0"},
      {[](const Choices& c) { return averages(c) && state_elsewhere(c); },
       [](const Choices& c) {
         return fmt::format("{} with memory.optimizer = \"{}\"", average_key(c), word_of(c.memory.optimizer));
       },
       "the average lies beside state on the device", "memory.optimizer = \"device\""},
      {[](const Choices& c) { return averages(c) && c.memory.master == MasterForm::split; },
       [](const Choices& c) { return average_key(c) + " with memory.master = \"split\""; },
       "masters that are averaged are whole", "memory.master = \"full\""},
      {[](const Choices& c) { return c.objective.of_pairs() && c.objective.logit_z_loss > 0; },
       [](const Choices& c) {
         return fmt::format("train.objective = \"dpo\" with train.logit_z_loss = {}", c.objective.logit_z_loss);
       },
       "it is a part of the loss of next tokens", "train.logit_z_loss = 0"},
  };
  return all;
}

}  // namespace

std::vector<Refusal> refusals_of(const Choices& choices) {
  std::vector<Refusal> found;
  for (const Pair& pair : pairs()) {
    if (!pair.holds(choices)) continue;
    const std::string what = pair.what(choices);
    found.push_back(
        {what.substr(0, what.find(' ')), fmt::format("{}: {}; {} goes with it", what, pair.why, pair.remedy)});
  }
  return found;
}

}  // namespace heddle::plan
