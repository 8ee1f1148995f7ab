#include "heddle/plan/refusals.h"

#include "heddle/base/error.h"

namespace heddle::plan {

namespace {

struct Refusal {
  bool (*holds)(const Choices& choices);
  std::string (*why)(const Choices& choices);
};

bool replicas(const Choices& c) { return c.parallel.exchange.replicas != 0; }
bool migrates(const Choices& c) { return c.parallel.exchange.migrates(); }
bool muon(const Choices& c) { return c.update.rule == passes::OptimizerRule::muon; }
bool state_elsewhere(const Choices& c) { return c.memory.optimizer != StateHome::device; }
std::string home(const Choices& c) { return std::string(word_of(c.memory.optimizer)); }
bool averages(const Choices& c) { return c.update.average_decay > 0; }

const Refusal kRefusals[] = {
    {[](const Choices& c) { return muon(c) && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.optimizer \"muon\" waits for the norm of all gradients; parallel.ahead_of_norm does "
           "not go with it");
     }},
    {[](const Choices& c) { return c.update.skips_outliers() && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.skip_norm_above and train.skip_loss_above wait for the norm of all gradients; "
           "parallel.ahead_of_norm does not go with them");
     }},
    {[](const Choices& c) { return c.parallel.exchange.recalls() && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "moe.replicas_from \"history\" needs the load of the step before; parallel.ahead_of_norm begins before "
           "it is "
           "known, and goes with \"counts\"");
     }},
    {[](const Choices& c) { return replicas(c) && c.parallel.exchange.capacity_factor > 0; },
     [](const Choices&) {
       return std::string(
           "moe.capacity_factor gives every expert as many rows, so that none is hot; it goes with moe.replicas = "
           "\"off\"");
     }},
    {[](const Choices& c) {
       return c.device.expert_product == ProductWay::batched && c.parallel.exchange.capacity_factor == 0;
     },
     [](const Choices&) {
       return std::string(
           "moe.product \"batched\" wants as many rows for each expert; moe.capacity_factor above 0 gives them, "
           "\"auto\" takes what the groups allow");
     }},
    {[](const Choices& c) {
       return replicas(c) && c.mesh.ep > 1 && c.exact_sums && c.parallel.exchange.topology != ir::Topology::plain;
     },
     [](const Choices& c) {
       return fmt::format(
           "train.exact_sums with moe.replicas needs parallel.exchange = \"plain\", where rows come home one by "
           "one; "
           "\"{}\" sums a token's rows by where they were",
           word_of(c.parallel.exchange.topology));
     }},
    {[](const Choices& c) {
       return migrates(c) && c.mesh.ep > 1 && c.exact_sums && c.parallel.exchange.topology != ir::Topology::plain;
     },
     [](const Choices& c) {
       return fmt::format(
           "train.exact_sums with moe.migrate_every needs parallel.exchange = \"plain\", where rows come home one "
           "by one; \"{}\" sums a token's rows by where they were",
           word_of(c.parallel.exchange.topology));
     }},
    {[](const Choices& c) { return migrates(c) && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "moe.migrate_every moves what an update has left for good; parallel.ahead_of_norm does not go with it");
     }},
    {[](const Choices& c) { return migrates(c) && (state_elsewhere(c) || !c.memory.weights.empty()); },
     [](const Choices& c) {
       return fmt::format(
           "moe.migrate_every moves state from device to device; memory.optimizer is \"{}\"{}, \"device\" with "
           "memory.weights = \"none\" goes with it",
           home(c), c.memory.weights.empty() ? "" : " and weights lie on the host");
     }},
    {[](const Choices& c) { return migrates(c) && c.parallel.exchange.capacity_factor > 0; },
     [](const Choices&) {
       return std::string(
           "moe.capacity_factor gives every expert as many rows, so that no home is better than another; it goes "
           "with moe.migrate_every = \"off\"");
     }},
    {[](const Choices& c) { return c.device.fp8 != passes::Fp8::off && c.exact_sums; },
     [](const Choices&) {
       return std::string(
           "device.fp8 rounds gradients by blocks of rows, which experts on several ranks cut elsewhere than on "
           "one; "
           "train.exact_sums goes with device.fp8 = \"off\"");
     }},
    {[](const Choices& c) { return c.device.fp8 != passes::Fp8::off && c.lora.rank > 0; },
     [](const Choices&) {
       return std::string(
           "device.fp8 is for weights that are trained; lora.rank above 0 freezes them, and goes with device.fp8 = "
           "\"off\"");
     }},
    {[](const Choices& c) { return c.update.skip_loss_above > 0 && c.exact_sums; },
     [](const Choices&) {
       return std::string(
           "train.skip_loss_above judges by a loss whose last bit each layout rounds its own way; "
           "train.exact_sums goes with train.skip_norm_above alone");
     }},
    {[](const Choices& c) { return averages(c) && state_elsewhere(c); },
     [](const Choices& c) {
       return fmt::format("train.average_decay keeps the state on the device; memory.optimizer is \"{}\"", home(c));
     }},
    {[](const Choices& c) { return averages(c) && c.memory.master == MasterForm::split; },
     [](const Choices&) {
       return std::string(
           "train.average_decay averages masters that are whole; memory.master = \"full\" goes with it");
     }},
    {[](const Choices& c) { return averages(c) && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.average_decay averages what an update has left for good; parallel.ahead_of_norm does not go with "
           "it");
     }},
    {[](const Choices& c) { return c.snapshot_every > 0 && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.snapshot_every copies what an update has left for good; parallel.ahead_of_norm does not go with "
           "it");
     }},
    {[](const Choices& c) { return c.objective.of_pairs() && c.objective.logit_z_loss > 0; },
     [](const Choices&) {
       return std::string("train.logit_z_loss is a part of the loss of next tokens; train.objective is \"dpo\"");
     }},
};

}  // namespace

void refuse_what_does_not_go_together(const Choices& choices) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.holds(choices)) config_error("{}", refusal.why(choices));
  }
}

}  // namespace heddle::plan
