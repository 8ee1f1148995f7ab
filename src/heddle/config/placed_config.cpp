#include "heddle/config/placed_config.h"

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/exact_layout.h"
#include "heddle/plan/check.h"
#include "heddle/plan/divisors.h"

namespace heddle::config {

namespace {

// Refuses with what else would do: a smaller microbatch, else a larger step.
[[noreturn]] void refuse_batch(const PlacedConfig& placed) {
  const RunConfig& c = placed.config;
  const int64_t batch = c.train.global_batch, ranks = c.data_ranks(), unit = c.train.microbatch * ranks;
  const int64_t pair = c.plan.objective.of_pairs() ? 2 : 1;  // sequences that stay together
  const std::string remedy =
      batch % (ranks * pair) == 0
          ? fmt::format("train.microbatch = {}",
                        pair * plan::largest_divisor(batch / (ranks * pair),
                                                     std::max<int64_t>(1, c.train.microbatch / pair)))
          : fmt::format("train.global_batch = {}", plan::next_multiple(batch, unit));
  if (batch % c.train.microbatch != 0) {
    config_error("{}: train.global_batch is {}, not a multiple of train.microbatch ({}); {} goes with it",
                 placed.place_of("train.global_batch"), batch, c.train.microbatch, remedy);
  }
  config_error("{}: train.global_batch is {}, not a multiple of train.microbatch × {} ({} × {}); {} goes with it",
               placed.place_of("train.global_batch"), batch,
               c.plan.mesh.dp > 0 ? "mesh.dp" : "the data parallel ranks that mesh.ranks leaves",
               c.train.microbatch, ranks, remedy);
}

void check_exact_sums(const PlacedConfig& placed) {
  const std::string why = why_not_exact(placed.config.model, placed.config.degrees());
  if (!why.empty())
    config_error("{}: train.exact_sums does not hold with {}", placed.place_of("train.exact_sums"), why);
}

void check_mesh(const PlacedConfig& placed) {
  const plan::Degrees& m = placed.config.plan.mesh;
  const int64_t asked = placed.config.mesh_ranks, others = placed.config.copy_ranks();
  const std::string named =
      fmt::format("mesh.tp × mesh.cp × mesh.pp ({} × {} × {} = {})", m.tp, m.cp, m.pp, others);
  if (m.dp == 0 && asked % others != 0) {
    config_error("{}: mesh.ranks is {}, not a multiple of {}; mesh.ranks = {} goes with it",
                 placed.place_of("mesh.ranks"), asked, named, plan::next_multiple(asked, others));
  }
  if (m.dp > 0 && asked > 0 && asked != others * m.dp) {
    config_error(
        "{}: mesh.ranks is {}, but mesh.dp is {}, times {}: {} ranks; mesh.{} goes with it",
        placed.place_of("mesh.ranks"), asked, m.dp, named, others * m.dp,
        asked % others == 0 ? fmt::format("dp = {}", asked / others) : fmt::format("ranks = {}", others * m.dp));
  }
  if (placed.config.ranks() > kMostRanks) {
    config_error("{}: the degrees of mesh multiply to {} ranks, at most {} are accepted",
                 placed.place_of("mesh.dp"), placed.config.ranks(), kMostRanks);
  }
}

}  // namespace

const std::string& PlacedConfig::place_of(const std::string& key) const {
  const auto at = places.find(key);
  return at == places.end() ? file : at->second;
}

void PlacedConfig::refuse(const std::vector<plan::Refusal>& refusals) const {
  if (!refusals.empty()) config_error("{}: {}", place_of(refusals.front().key), refusals.front().message);
}

void PlacedConfig::check() const {
  const RunConfig& c = config;
  plan::Plan plan{c.plan};
  plan.sequences = c.train.microbatch;
  plan.sequence_length = c.train.sequence_length;
  plan.weighs_labels = !c.data.weight_key.empty();
  refuse(plan::refusals_of_model(c.model, plan));
  check_mesh(*this);
  if (c.plan.exact_sums) check_exact_sums(*this);
  if (c.train.global_batch % (c.train.microbatch * c.data_ranks()) != 0) refuse_batch(*this);
  if (c.train.batch_ramp) {
    try {
      check_batch_ramp(c.train.batch_ramp, c.train.global_batch, c.train.microbatch * c.data_ranks());
    } catch (const ConfigError& error) {
      config_error("{}: train.batch_ramp: {}", place_of("train.batch_ramp"), error.what());
    }
  }
  if (c.data.vocabulary > c.model.vocab_size) {
    config_error("{}: data.vocabulary is {}, more ids than model.vocab_size ({})", place_of("data.vocabulary"),
                 c.data.vocabulary, c.model.vocab_size);
  }
  if (c.train.min_learning_rate > c.train.learning_rate) {
    config_error("{}: train.min_learning_rate is {}, more than train.learning_rate ({})",
                 place_of("train.min_learning_rate"), c.train.min_learning_rate, c.train.learning_rate);
  }
  if (c.device.dtype == Dtype::f64 && c.device.backend != "reference") {
    config_error("{}: device.dtype is f64, which needs device.backend = \"reference\"", place_of("device.dtype"));
  }
  const model::Dispatcher& exchange = c.plan.parallel.exchange;
  if (exchange.room_factor > 0 && exchange.replicas != 0 && c.device.backend == "cuda") {
    config_error(
        "{}: moe.room_factor is {} beside moe.replicas: on device.backend = \"cuda\" weights of replicas go where "
        "the "
        "host has read the counts; moe.room_factor = 0 or moe.replicas = \"off\" goes with it",
        place_of("moe.room_factor"), exchange.room_factor);
  }
  if (c.name.empty() || c.name.find('/') != std::string::npos || c.name.starts_with('.')) {
    config_error("{}: name is '{}', must be the name of a folder (no '/', no '.' in front)", place_of("name"),
                 shown(c.name));
  }
}

}  // namespace heddle::config
