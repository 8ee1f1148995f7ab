#include "heddle/search/plans/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/model/dispatcher.h"
#include "heddle/search/block_work.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

constexpr double kReached = 0.7;  // part of the rated products, as passes assume
constexpr int kMostReplicas = 64;

double width_of(const Job& j) {
  return d(j.shape.moe_latent_size > 0 ? j.shape.moe_latent_size : j.shape.hidden_size);
}
/// Numbers of one expert on a rank.
double numbers_of(const Job& j) {
  const model::Shape& m = j.shape;
  return (m.has_gated_mlp() ? 3 : 2) * width_of(j) * d(m.moe_intermediate_size) / j.mesh.etp;
}
double tokens_routed(const Job& j) { return j.microbatch * j.sequence / j.mesh.cp / j.mesh.tp; }

}  // namespace

int replica_slots(const Job& j) { return j.exchange.capacity_factor > 0 ? 0 : j.exchange.replica_slots(); }

double fullest_rows(const Job& j, double imbalance) {
  const model::Shape& m = j.shape;
  return j.exchange.capacity_factor > 0
             ? std::min(j.exchange.capacity_factor, d(m.n_routed_experts) / m.computing_experts())
             : imbalance;
}

double even_exchange_s(const Job& j, const Behaviour& b) {
  const plan::Degrees& l = j.mesh;
  const model::Shape& m = j.shape;
  if (l.ep <= 1) return 0;
  return cost::exchange_s(j.device, b.net, {l.ep, l.etp},
                          {tokens_routed(j), 2 * width_of(j), static_cast<int>(std::lround(m.computing_experts())),
                           static_cast<int>(m.reachable_groups()), once_a_node(j)});
}

bool crosses_nodes(const Job& j) {
  const int ranks = j.mesh.ep * j.mesh.etp;
  return cost::ranks_inside(j.device, {ranks, 1}) < ranks;
}

cost::Evened evened_rows(const Job& j, const Behaviour& b, double imbalance) {
  const plan::Degrees& l = j.mesh;
  const model::Shape& m = j.shape;
  if (replica_slots(j) == 0 || l.ep <= 1 || imbalance <= 1) return {.imbalance = imbalance};
  const int inside = cost::ranks_inside(j.device, {l.ep * l.etp, 1});
  const double numbers = numbers_of(j), rows = tokens_routed(j) * m.computing_experts() * l.etp;
  // Two products of a row each way and one for the weights, over all matrices; weights come twice in 16 bits, their
  // gradient goes once in 32.
  const double copy_bytes = numbers * (2 * 2 + 4);
  const cost::CopySeconds seconds{
      .products = 6 * numbers * rows / (kReached * j.device.flops(j.precision)),
      .crossings = crosses_nodes(j) ? 0 : 4 * even_exchange_s(j, b),
      .replica_within = copy_bytes / (j.device.inner.bytes_per_s * b.net.inner),
      .replica_across = l.etp * copy_bytes / (j.device.outer.bytes_per_s * b.net.outer * inside)};
  return cost::evened({.experts = m.n_routed_experts,
                       .ranks = l.ep,
                       .on_node = std::max(1, inside / l.etp),
                       .replicas = replica_slots(j),
                       .imbalance = imbalance},
                      seconds, j.exchange.replicas == model::Dispatcher::kReplicasByCost);
}

double replica_bytes(const Job& j) {
  if (replica_slots(j) == 0 || j.mesh.ep <= 1) return 0;
  const double slots = replica_slots(j) * numbers_of(j);
  // Beside the backward of one microbatch a pair has the forward of another.
  return slots * (2 + 4) + (pipeline_of(j)->pairs() ? slots * 2 : 0);
}

std::string replicas_word(int replicas) {
  if (replicas == 0) return "off";
  return replicas == model::Dispatcher::kReplicasByCost ? "auto" : fmt::format("{}", replicas);
}

std::optional<int> replicas_of(std::string_view word) {
  if (word == "off") return 0;
  if (word == "auto") return model::Dispatcher::kReplicasByCost;
  int n = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
  const bool read = error == std::errc() && end == word.data() + word.size();
  return read && n >= 1 && n <= kMostReplicas ? std::optional(n) : std::nullopt;
}

int cheapest_replicas(const Job& job, const Behaviour& b, const std::vector<int>& values) {
  int best = values.front();
  double least = 0;
  for (const int value : values) {
    Job with = job;
    with.exchange.replicas = value;
    const BlockWork moe = Pricing(with, b).moe();
    const double seconds = block_s(moe.forward, with, b) + block_s(moe.backward, with, b);
    if (value != values.front() && seconds >= least) continue;
    best = value;
    least = seconds;
  }
  return best;
}

}  // namespace heddle::search
