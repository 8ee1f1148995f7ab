#include "heddle/model/expert_costs.h"

#include <algorithm>
#include <cmath>

namespace heddle::model {

ExpertCosts expert_costs(const ModelConfig& config, const Dispatcher& exchange, const ExpertRank& rank) {
  const auto hidden = static_cast<double>(config.expert_rows_width());
  const double matrices = config.has_gated_mlp() ? 3 : 2;
  const double numbers = matrices * hidden * static_cast<double>(config.moe_intermediate_size) / rank.slices;
  const double row_bytes = 4 * hidden * static_cast<double>(size_of(rank.dtype));
  const Dtype wide = rank.dtype == Dtype::f64 || rank.exact_sums ? Dtype::f64 : Dtype::f32;
  const double copy_bytes = numbers * static_cast<double>(2 * size_of(rank.dtype) + size_of(wide));
  const auto ps = [](double us) { return static_cast<int64_t>(std::llround(std::min(us * 1e6, 1e15))); };
  return {.row_ps = ps(6 * numbers / rank.flops_per_us),
          .row_within_ps = ps(row_bytes / exchange.within_bytes_per_us()),
          .row_across_ps = ps(row_bytes / exchange.across_bytes_per_us()),
          .replica_within_ps = ps(copy_bytes / exchange.within_bytes_per_us()),
          .replica_across_ps = ps(copy_bytes / exchange.across_bytes_per_us())};
}

}  // namespace heddle::model
