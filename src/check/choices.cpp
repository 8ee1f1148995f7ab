#include "check/choices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace heddle::check {

namespace {

// The least of the chosen logits, and the largest of the others.
std::pair<double, double> edges(std::span<const double> logits, const Chosen& chosen) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (size_t e = 0; e < logits.size(); ++e) {
    if (std::binary_search(chosen.begin(), chosen.end(), e))
      least = std::min(least, logits[e]);
    else
      most = std::max(most, logits[e]);
  }
  return {least, most};
}

}  // namespace

bool is_router(const std::string& module) { return module.ends_with(".mlp.gate"); }

Chosen largest(std::span<const double> logits, size_t count, bool surely) {
  Chosen order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (count >= order.size()) return order;
  if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) return {};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double last = logits[order[count - 1]], next = logits[order[count]];
  // Softmax in fp32 keeps logits apart that lie so far apart.
  if (surely && !(last - next > 0x1p-20 * std::max(1.0, std::abs(logits[order[0]])))) return {};
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

ChosenRows chosen_rows(const Dump& dump, const std::vector<Module>& modules) {
  const Layout& layout = dump.layout;
  ChosenRows all;
  if (layout.model.n_routed_experts == 0 || layout.model.topk_bias || layout.model.n_group > 1 ||
      layout.model.sigmoid_scores || layout.model.num_hash_layers > 0)
    return all;
  const auto experts = static_cast<size_t>(layout.model.n_routed_experts),
             count = static_cast<size_t>(layout.model.num_experts_per_tok);
  const auto rows = static_cast<size_t>(layout.sequences * layout.sequence_length);
  std::map<AtMicrobatch, std::vector<uint8_t>> seen;
  for (const RankDump& rank : dump.ranks) {
    for (const Record& record : rank.records) {
      const auto module =
          std::find_if(modules.begin(), modules.end(), [&](const Module& m) { return m.name == record.name; });
      if (record.stage != Stage::forward || !is_router(record.name) || module == modules.end()) continue;
      const std::vector<int64_t> dims = record.slice.dims();
      if (record.slice.whole() != static_cast<int64_t>(rows * experts) ||
          dims.back() != static_cast<int64_t>(experts))
        continue;
      const AtMicrobatch at{module->value, record.microbatch * layout.mesh.dp + rank.at.at(ir::Axis::dp)};
      std::vector<Chosen>& chosen = all[at];
      std::vector<uint8_t>& known = seen[at];
      chosen.resize(rows), known.resize(rows, 0);
      const std::vector<int64_t> places = record.slice.places();
      for (size_t i = 0; i < places.size(); i += experts) {
        const size_t row = static_cast<size_t>(places[i]) / experts;
        Chosen own = largest(std::span(record.values).subspan(i, experts), count, true);
        // Ranks that hold one row and choose differently: neither is the trainer's choice.
        chosen[row] = known[row] != 0 && chosen[row] != own ? Chosen() : std::move(own);
        known[row] = 1;
      }
    }
  }
  return all;
}

double overlap(std::span<const double> logits, const Chosen& chosen) {
  const auto [least, most] = edges(logits, chosen);
  return most - least;
}

void choose(std::span<double> logits, const Chosen& chosen) {
  const auto [least, most] = edges(logits, chosen);
  if (!(most >= least)) return;
  const double line = (least + most) / 2, step = 1e-13 * (1 + std::abs(line));
  for (size_t e = 0; e < logits.size(); ++e) {
    if (std::binary_search(chosen.begin(), chosen.end(), e))
      logits[e] = std::max(logits[e], line + step);
    else
      logits[e] = std::min(logits[e], line - step);
  }
}

}  // namespace heddle::check
