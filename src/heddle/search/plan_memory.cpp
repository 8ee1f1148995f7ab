#include "heddle/search/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::search {

namespace {

constexpr double kOffloaded = 0.15;  // of the kept activations, as the estimate has it

double d(int64_t n) { return static_cast<double>(n); }

model::Saving saving_of(const Job& j) {
  const Software& w = j.software;
  model::Saving s;
  s.recompute = j.recompute;
  s.fused_attention = w.fused_attention;
  s.sequence_parallel = w.sequence_parallel;
  s.dropout = w.dropout;
  s.narrow_inputs = j.precision != cost::Precision::bf16 && j.precision != cost::Precision::fp16;
  s.tp = j.layout.tp;
  s.etp = j.layout.etp;
  s.imbalance = j.imbalance;
  return s;
}

}  // namespace

std::vector<MemoryPart> memory_parts(const Job& job, const Behaviour& behaviour) {
  const Estimate whole = estimate(job, behaviour);
  std::vector<MemoryPart> parts;
  if (!whole.reason.empty()) return parts;
  // Static bytes are linear in the bytes of gradients and states: what goes when either is nought.
  const auto without = [&](double Software::*bytes) {
    Job less = job;
    less.software.*bytes = 0;
    return std::max(0.0, whole.static_bytes - estimate(less, behaviour).static_bytes);
  };
  const double gradients = without(&Software::gradient_bytes), states = without(&Software::state_bytes);
  parts.push_back({"weights", std::max(0.0, whole.static_bytes - gradients - states)});
  parts.push_back({"gradients", gradients});
  parts.push_back({"optimizer states", states});

  // Kept activations in the proportion of what the blocks of a layer keep; what doesn't grow with them is work
  // space.
  const model::Shape& s = job.shape;
  const model::SavedBytes kept = model::saved_bytes(s, saving_of(job), job.sequence);
  const double layers = d(s.layers);
  std::vector<MemoryPart> blocks{{"attention's activations", kept.attention * d(s.attention_blocks()) / layers},
                                 {"dense layers' activations", kept.dense * d(s.dense_blocks()) / layers},
                                 {"experts' activations", kept.moe * d(s.moe_blocks()) / layers},
                                 {"Mamba's activations", kept.mamba * d(s.mamba_blocks()) / layers}};
  double layer = 0;
  for (const MemoryPart& b : blocks) layer += b.bytes;
  // Offload takes a fixed share of what is kept and none of the work space: toggling it tells them apart.
  Job toggled = job;
  toggled.software.offload_activations = !job.software.offload_activations;
  const double moved = std::abs(whole.activation_bytes - estimate(toggled, behaviour).activation_bytes);
  const double left = job.software.offload_activations ? 1 - kOffloaded : 1;
  const double all = std::clamp(moved / kOffloaded * left, 0.0, whole.activation_bytes);
  for (MemoryPart& b : blocks)
    if (b.bytes > 0) parts.push_back({b.name, all * b.bytes / layer});
  parts.push_back({"head and work space", std::max(0.0, whole.activation_bytes - (layer > 0 ? all : 0))});
  double sum = 0;
  for (const MemoryPart& p : parts) sum += p.bytes;
  if (whole.peak_bytes > sum * (1 + 1e-9)) parts.push_back({"reserved beside", whole.peak_bytes - sum});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  std::erase_if(parts, [](const MemoryPart& p) { return p.bytes <= 0; });
  return parts;
}

std::vector<Remedy> remedies_of(const Job& job, double limit, const Behaviour& behaviour) {
  const Estimate base = estimate(job, behaviour);
  std::vector<Remedy> all;
  if (!base.reason.empty()) return all;
  const auto attempt = [&](std::string what, const auto& change) {
    Job other = job;
    change(other);
    if (other == job) return;
    const Estimate e = estimate(other, behaviour);
    if (!e.reason.empty() || e.peak_bytes >= base.peak_bytes) return;
    all.push_back(
        {std::move(what), std::move(other), base.peak_bytes - e.peak_bytes, e.step_s - base.step_s, e.peak_bytes});
  };
  using R = model::Recompute;
  const bool experts = job.shape.moe.count > 0;
  if (!job.recompute.full) {
    attempt("recompute of norms", [](Job& j) { j.recompute.norms = true; });
    attempt("recompute of activation functions", [](Job& j) { j.recompute.activations = true; });
    attempt("recompute of norms and activation functions",
            [](Job& j) { j.recompute.norms = j.recompute.activations = true; });
    if (job.shape.is_mla())
      attempt("recompute of latent projections, norms and activation functions",
              [](Job& j) { j.recompute.latent_up = j.recompute.norms = j.recompute.activations = true; });
    if (!job.software.fused_attention)
      attempt("recompute of attention's scores", [](Job& j) { j.recompute.scores = true; });
    if (job.shape.dense_blocks() > 0)
      attempt("recompute of dense layers", [](Job& j) { j.recompute.dense = true; });
    if (experts) attempt("recompute of whole mixture layers", [](Job& j) { j.recompute.experts = true; });
    attempt("recompute of every second layer", [](Job& j) { j.recompute = R{.full = true, .every = 0.5}; });
  }
  attempt("recompute of all layers", [](Job& j) { j.recompute = R{.full = true}; });
  attempt("offload of activations", [](Job& j) { j.software.offload_activations = true; });
  attempt("microbatches of 1", [](Job& j) { j.microbatch = 1; });
  attempt("optimizer states sharded over data ranks",
          [](Job& j) { j.software.sharded_states = j.software.reduce_scatter = true; });
  attempt("weights sharded over data ranks", [](Job& j) {
    j.software.sharded_weights = j.software.sharded_states = j.software.reduce_scatter = true;
  });
  std::stable_sort(all.begin(), all.end(), [&](const Remedy& a, const Remedy& b) {
    const bool fits_a = a.peak_bytes <= limit, fits_b = b.peak_bytes <= limit;
    if (fits_a != fits_b) return fits_a;
    if (fits_a) return a.costs_s < b.costs_s;
    return a.costs_s * b.frees_bytes < b.costs_s * a.frees_bytes;
  });
  return all;
}

}  // namespace heddle::search
