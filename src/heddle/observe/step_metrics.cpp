#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

std::span<const MetricField> metric_fields() {
  static constexpr MetricField fields[] = {
      {"lm_loss", "loss/lm", &StepMetrics::lm_loss},
      {"auxiliary_loss", "loss/auxiliary", &StepMetrics::auxiliary_loss},
      {"mtp_loss", "loss/mtp", &StepMetrics::mtp_loss},
      {"held_out_loss", "loss/held_out", &StepMetrics::held_out_loss},
      {"learning_rate", "optimizer/learning_rate", &StepMetrics::learning_rate},
      {"gradient_norm", "optimizer/gradient_norm", &StepMetrics::gradient_norm},
      {"step_s", "speed/step_s", &StepMetrics::step_s},
      {"trained_s", "speed/trained_s", &StepMetrics::trained_s},
      {"tokens", "speed/tokens", &StepMetrics::tokens},
      {"tokens_per_s", "speed/tokens_per_s", &StepMetrics::tokens_per_s},
      {"flops_per_s", "speed/flops_per_s", &StepMetrics::flops_per_s},
      {"expert_imbalance", "experts/imbalance", &StepMetrics::expert_imbalance},
      {"copy_rows", "copies/rows", &StepMetrics::copy_rows},
      {"copy_crossings_saved", "copies/crossings_saved", &StepMetrics::copy_crossings_saved},
      {"copy_weight_bytes", "copies/weight_bytes", &StepMetrics::copy_weight_bytes},
      {"copy_gradient_bytes", "copies/gradient_bytes", &StepMetrics::copy_gradient_bytes},
      {"copies_by_counts", "copies/by_counts", &StepMetrics::copies_by_counts},
      {"copies_by_history", "copies/by_history", &StepMetrics::copies_by_history},
      {"copies_even", "copies/even", &StepMetrics::copies_even},
      {"copies_not_worth", "copies/not_worth", &StepMetrics::copies_not_worth},
      {"arena_live_peak_bytes", "memory/arena_live_peak_bytes", &StepMetrics::arena_live_peak_bytes},
      {"arena_reserved_peak_bytes", "memory/arena_reserved_peak_bytes", &StepMetrics::arena_reserved_peak_bytes},
  };
  return fields;
}

std::span<const CopyField> copy_fields() {
  static constexpr CopyField fields[] = {
      {"rows", &CopyFigures::rows, &StepMetrics::copy_rows},
      {"crossings_saved", &CopyFigures::crossings_saved, &StepMetrics::copy_crossings_saved},
      {"weight_bytes", &CopyFigures::weight_bytes, &StepMetrics::copy_weight_bytes},
      {"gradient_bytes", &CopyFigures::gradient_bytes, &StepMetrics::copy_gradient_bytes},
      {"by_counts", &CopyFigures::by_counts, &StepMetrics::copies_by_counts},
      {"by_history", &CopyFigures::by_history, &StepMetrics::copies_by_history},
      {"even", &CopyFigures::even, &StepMetrics::copies_even},
      {"not_worth", &CopyFigures::not_worth, &StepMetrics::copies_not_worth},
  };
  return fields;
}

bool have_layers(int64_t step, size_t numbers) {
  constexpr size_t kNumbersAStep = 4096;
  return step % static_cast<int64_t>(numbers / kNumbersAStep + 1) == 0;
}

void add_copies(StepMetrics& metrics) {
  if (metrics.copies_L.empty()) return;
  for (const CopyField& field : copy_fields()) {
    double sum = 0;
    for (const LayerCopies& layer : metrics.copies_L) sum += layer.figures.*field.of_layer;
    metrics.*field.of_step = sum;
  }
}

}  // namespace heddle::observe
