#include "heddle/plan/context_ranks.h"

#include <numeric>

#include "heddle/model/model_config.h"
#include "heddle/plan/choices.h"
#include "heddle/plan/divisors.h"
#include "heddle/plan/mesh.h"

namespace heddle::plan {

int64_t common_heads(const model::ModelConfig& config) {
  if (!config.is_grouped()) return config.num_attention_heads;
  int64_t heads = 0;
  for (const int64_t of : {config.num_attention_heads, config.num_key_value_heads, config.window_attention_heads,
                           config.window_key_value_heads})
    heads = std::gcd(heads, of);  // 0: as in the other layers
  return heads;
}

int context_inner(const model::ModelConfig& config, const Parallel& parallel, const Degrees& mesh) {
  if (!has_runs(parallel.context) || mesh.cp == 1) return 1;
  if (parallel.context_inner > 0) return parallel.context_inner;
  if (parallel.context == model::Context::double_ring)
    return static_cast<int>(largest_divisor(mesh.cp, mesh.cp - 1));
  const int64_t heads = common_heads(config);
  if (heads % mesh.tp != 0) return 1;
  return static_cast<int>(largest_divisor(std::gcd(heads / mesh.tp, int64_t{mesh.cp}), mesh.cp - 1));
}

}  // namespace heddle::plan
