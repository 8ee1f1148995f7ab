// Gates of the chosen experts, divided by their sum where they should not be, or the other way round. A layer's
// experts give Σ gate · expert, so their output is then multiplied by that sum in each row.
#include <algorithm>
#include <cmath>
#include <functional>

#include "check/fault_rows.h"

namespace heddle::check {

namespace {

// The sum of the chosen scores of each row of logits.
Numbers sums_of(const Whole& logits, const model::ModelConfig& m) {
  const auto experts = static_cast<size_t>(logits.dims.back()), chosen = static_cast<size_t>(m.num_experts_per_tok);
  Numbers sums, scores(experts);
  for (size_t row = 0; row < logits.values.size(); row += experts) {
    const auto from = logits.values.begin() + static_cast<std::ptrdiff_t>(row);
    const double top = *std::max_element(from, from + static_cast<std::ptrdiff_t>(experts));
    double all = 0;
    for (size_t e = 0; e < experts; ++e) {
      const double logit = from[static_cast<std::ptrdiff_t>(e)];
      all += scores[e] = m.softplus_scores
                             ? std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))))
                         : m.sigmoid_scores ? 1 / (1 + std::exp(-logit))
                                            : std::exp(logit - top);
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    double sum = 0;
    for (size_t e = 0; e < chosen; ++e) sum += scores[e];
    sums.push_back(m.sigmoid_scores || m.softplus_scores ? sum : sum / all);
  }
  return sums;
}

}  // namespace

void gate_faults(const Setting& s, std::vector<Fault>& all) {
  const model::ModelConfig& m = s.reference.model();
  // A bias on the choice, groups of experts or a table of token ids would choose others than the largest scores.
  if (m.n_routed_experts == 0 || m.topk_bias || m.n_group > 1 || m.num_experts_per_tok > m.n_routed_experts ||
      m.num_hash_layers > 0)
    return;
  all.push_back({.name = m.norm_topk_prob ? "gates_not_normed" : "gates_normed",
                 .sentence = m.norm_topk_prob ? "the gates of the chosen experts are not divided by their sum"
                                              : "the gates of the chosen experts are divided by their sum",
                 .change = [&m](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
                   const bool of_experts = seen.all.name.ends_with(".mlp.experts");
                   if (seen.all.stage != Stage::forward ||
                       !(of_experts || (seen.all.name.ends_with(".mlp") && m.n_shared_experts == 0)))
                     return std::nullopt;
                   Record gate = seen.record;
                   gate.name = seen.all.name.substr(0, seen.all.name.rfind(".mlp")) + ".mlp.gate";
                   const Whole* logits = seen.reference.find(seen.reference.key_of(gate));
                   if (logits == nullptr) return std::nullopt;
                   const Numbers sums = sums_of(*logits, m);
                   Numbers changed = whole;
                   const size_t width = changed.size() / sums.size();
                   for (size_t i = 0; i < changed.size(); ++i)
                     changed[i] *= m.norm_topk_prob ? sums[i / width] : 1 / sums[i / width];
                   return taken(changed, seen.record.slice);
                 },
                 .text = [](const std::string& line) { return line + "  {norm of gates turned round}"; }});
}

}  // namespace heddle::check
