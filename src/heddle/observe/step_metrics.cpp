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
      {"arena_live_peak_bytes", "memory/arena_live_peak_bytes", &StepMetrics::arena_live_peak_bytes},
      {"arena_reserved_peak_bytes", "memory/arena_reserved_peak_bytes", &StepMetrics::arena_reserved_peak_bytes},
  };
  return fields;
}

}  // namespace heddle::observe
