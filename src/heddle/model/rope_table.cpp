#include "heddle/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::model {

double yarn_mscale(double factor, double x) { return factor <= 1 ? 1.0 : 0.1 * x * std::log(factor) + 1.0; }

namespace {

// Long waves are stretched, short ones are not, and those between in part (LLaMA 3.1).
void stretch_llama3(const RopeScaling& scaling, std::vector<double>& frequencies) {
  const double context = scaling.original_max_position_embeddings;
  for (double& frequency : frequencies) {
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double ramp = scaling.high_freq_factor - scaling.low_freq_factor;  // 0: a step (Llama 4 Scout)
    const double stays = ramp > 0 ? std::clamp((turns - scaling.low_freq_factor) / ramp, 0.0, 1.0)
                                  : (turns >= scaling.low_freq_factor ? 1.0 : 0.0);
    frequency = (1 - stays) * frequency / scaling.factor + stays * frequency;
  }
}

void stretch_yarn(const ModelConfig& config, std::vector<double>& result) {
  const auto width = static_cast<double>(config.rotary_width());
  const RopeScaling& yarn = *config.rope_scaling;
  // The pair whose wave turns `turns` times over the original context.
  const auto pair_of = [&](double turns) {
    return width * std::log(yarn.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(config.rope_theta));
  };
  double low = pair_of(yarn.beta_fast), high = pair_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (high == low) high += 0.001;
  for (size_t i = 0; i < result.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result[i] = result[i] * (1 - ramp) + result[i] / yarn.factor * ramp;
  }
}

std::vector<double> frequencies(const ModelConfig& config, int64_t sequence) {
  const auto width = static_cast<double>(config.rotary_width());
  std::vector<double> result;
  for (int64_t i = 0; i < config.rotary_width() / 2; ++i) {
    const bool turns = i < config.turning_pairs();
    result.push_back(turns ? std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / width) : 0);
  }
  if (!config.rope_scaling) return result;
  switch (config.rope_scaling->type) {
    case RopeType::yarn: stretch_yarn(config, result); break;
    case RopeType::llama3: stretch_llama3(*config.rope_scaling, result); break;
    case RopeType::linear:
      for (double& frequency : result) frequency /= config.rope_scaling->factor;
      break;
    case RopeType::longrope: {
      const RopeScaling& scaling = *config.rope_scaling;
      const std::vector<double> factors =
          factors_of(scaling.is_long(sequence) ? scaling.long_factor : scaling.short_factor).value();
      for (size_t i = 0; i < result.size(); ++i) result[i] /= factors.at(i);
      break;
    }
  }
  return result;
}

}  // namespace

std::vector<double> rope_table(const ModelConfig& config, int64_t sequence) {
  const std::vector<double> f = frequencies(config, sequence);
  const double scale = config.rope_scaling ? config.rope_scaling->rotary_scale(sequence) : 1;
  std::vector<double> table;
  for (int64_t t = 0; t < sequence; ++t) {
    for (const double frequency : f) table.push_back(std::cos(static_cast<double>(t) * frequency) * scale);
    for (const double frequency : f) table.push_back(std::sin(static_cast<double>(t) * frequency) * scale);
  }
  return table;
}

}  // namespace heddle::model
