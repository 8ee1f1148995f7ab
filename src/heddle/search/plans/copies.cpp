#include "heddle/search/plans/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "heddle/model/dispatcher.h"
#include "heddle/search/block_work.h"

namespace heddle::search {

namespace {

constexpr double kReached = 0.7;  // of the rated products, as passes reckon
constexpr int kMostReplicas = 64;

double d(int64_t n) { return static_cast<double>(n); }

double width_of(const Job& j) { return d(j.shape.moe.latent > 0 ? j.shape.moe.latent : j.shape.hidden); }
/// Numbers of one expert on a rank.
double numbers_of(const Job& j) {
  const model::Experts& m = j.shape.moe;
  return (m.gated ? 3 : 2) * width_of(j) * d(m.ffn) / j.layout.etp;
}
double tokens_routed(const Job& j) { return j.microbatch * j.sequence / j.layout.cp / j.layout.tp; }

}  // namespace

double even_exchange_s(const Job& j, const Behaviour& b) {
  const Layout& l = j.layout;
  const model::Experts& m = j.shape.moe;
  if (l.ep <= 1) return 0;
  return cost::exchange_s(j.device, b.net, {l.ep, l.etp},
                          {tokens_routed(j), 2 * width_of(j), static_cast<int>(m.chosen),
                           static_cast<int>(m.most_nodes), j.software.once_a_node});
}

bool crosses_nodes(const Job& j) {
  const int ranks = j.layout.ep * j.layout.etp;
  return cost::ranks_inside(j.device, {ranks, 1}) < ranks;
}

cost::Evened evened_rows(const Job& j, const Behaviour& b, double imbalance) {
  const Layout& l = j.layout;
  const model::Experts& m = j.shape.moe;
  if (m.copies() == 0 || l.ep <= 1 || imbalance <= 1) return {.imbalance = imbalance};
  const int inside = cost::ranks_inside(j.device, {l.ep * l.etp, 1});
  const double numbers = numbers_of(j), rows = tokens_routed(j) * d(m.chosen) * l.etp;
  // Two products of a row each way and one for the weights, over all matrices; weights come twice in 16 bits, their
  // gradient goes once in 32.
  const double copy_bytes = numbers * (2 * 2 + 4);
  const cost::CopySeconds seconds{
      .products = 6 * numbers * rows / (kReached * j.device.flops(j.precision)),
      .crossings = crosses_nodes(j) ? 0 : 4 * even_exchange_s(j, b),
      .copy_within = copy_bytes / (j.device.inner.bytes_per_s * b.net.inner),
      .copy_across = l.etp * copy_bytes / (j.device.outer.bytes_per_s * b.net.outer * inside)};
  return cost::evened({.experts = m.count,
                       .ranks = l.ep,
                       .on_node = std::max(1, inside / l.etp),
                       .copies = m.copies(),
                       .imbalance = imbalance},
                      seconds, m.replicas == model::Dispatcher::kReplicasByCost);
}

double copies_bytes(const Job& j) {
  const model::Experts& m = j.shape.moe;
  if (m.copies() == 0 || j.layout.ep <= 1) return 0;
  const double slots = m.copies() * numbers_of(j);
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
    with.shape.moe.replicas = value;
    const BlockWork moe = Pricing(with, b).moe();
    const double seconds = block_s(moe.forward, with, b) + block_s(moe.backward, with, b);
    if (value != values.front() && seconds >= least) continue;
    best = value;
    least = seconds;
  }
  return best;
}

}  // namespace heddle::search
