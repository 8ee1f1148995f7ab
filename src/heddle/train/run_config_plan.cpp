#include "heddle/train/run_config_plan.h"

#include <algorithm>

#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/registry.h"

namespace heddle::train {

namespace {

bool host_runs(std::string_view kind) {
  const auto& kernels = kernels::host_kernels();
  return std::any_of(kernels.begin(), kernels.end(), [&](const auto& k) { return k.op_kind == kind; });
}

}  // namespace

Dtype resolved_dtype(const RunConfig& config) {
  if (config.device.dtype == "bf16") return Dtype::bf16;
  if (config.device.dtype == "f32") return Dtype::f32;
  if (config.device.dtype == "f64") return Dtype::f64;
  return config.device.backend == "host" && kernels::host::avx512_bf16() ? Dtype::bf16 : Dtype::f32;
}

plan::Plan plan_of(const RunConfig& config) {
  plan::Plan plan;
  plan.microbatches = static_cast<int>(config.microbatches());
  plan.sequences = config.train.microbatch;
  plan.sequence_length = config.train.sequence_length;
  plan.dtype = resolved_dtype(config);
  plan.fusions = config.fusions;
  plan.update.beta1 = config.train.beta1;
  plan.update.beta2 = config.train.beta2;
  plan.update.epsilon = config.train.epsilon;
  plan.update.weight_decay = config.train.weight_decay;
  plan.update.clip_norm = config.train.clip_norm;
  if (config.device.pack_weights) {
    // The fused head reads packed weights only where the backend has a kernel for it.
    const bool head = !config.fusions.contains("loss") || host_runs("linear_cross_entropy_train");
    plan.packed_bytes = [head, vocabulary = config.model.vocab_size,
                         backend = config.device.backend](const ir::Value& value) -> int64_t {
      if (!head && value.shape.size() == 2 && value.shape[0].count == vocabulary) return 0;
      return kernels::packed_weight_bytes(backend, value);
    };
  }
  return plan;
}

}  // namespace heddle::train
