#include "heddle/planner/measured_rates.h"

#include <algorithm>
#include <cmath>

#include "heddle/backends/backend.h"
#include "heddle/cost/product_ways.h"

namespace heddle::planner {

namespace {

// Four digits: more would only be noise in the run's record.
double four_digits(double x) {
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(x)));
  return std::round(x * scale) / scale;
}

}  // namespace

const std::vector<std::string>& rate_keys() {
  static const std::vector<std::string> keys{
      "device.product_rate",         "device.memory_rate",  "memory.host_rate",     "parallel.message_rate",
      "parallel.message_latency_us", "device.product_ways", "device.copy_engine_kb"};
  return keys;
}

config::RunConfig rated(config::RunConfig config, const cost::MachineProfile& profile, const JobPlaces& places) {
  if (!prices(profile, config.device.backend)) return config;
  const bool apart = !backends::named(config.device.backend).shares_memory;
  const auto add = [&](const char* key, double value) {
    const config::Setting& s = *config::find_setting(key);
    const bool open = std::get<double>(s.get(config)) == 0;
    if (open && std::isfinite(value) && value > 0) s.set(config, std::min(s.most, four_digits(value)));
  };
  const auto ranks = static_cast<int>(config.ranks());
  // A rank has a device of its own, or a part of the processor.
  const int sharing = apart ? 1 : places.sharing_memory > 0 ? places.sharing_memory : ranks;
  const Dtype dtype = train::resolved_dtype(config);
  const double flops = profile.flops_per_s(dtype) > 0 ? profile.flops_per_s(dtype) : profile.bf16_flops_per_s;
  constexpr double kGiga = 1e9;
  add("device.product_rate", flops / kGiga / sharing);
  add("device.memory_rate", profile.copy_bytes_per_s / kGiga / sharing);
  const double to_host = apart ? profile.host_copy_bytes_per_s : profile.copy_bytes_per_s;
  add("memory.host_rate", to_host / 2 / kGiga / sharing);  // read here, written there
  if (ranks > 1) {
    constexpr double kBytesPerUs = 1000;  // 1 GB/s
    add("parallel.message_rate", cost::link_bytes_per_us(profile, places.over, ranks) / kBytesPerUs);
    add("parallel.message_latency_us", cost::message_us(profile, places.over, ranks, 1));
    if (config.plan.device.copy_engine != plan::CopyEngine::off)
      add("device.copy_engine_kb", profile.engine_from_bytes * 1e-3);
  }
  if (std::string& ways = config.plan.device.product_ways; !apart && ways.empty())
    ways = cost::measured_ways(profile.ops, dtype, sharing == 1 ? profile.cores : 1).text();
  return config;
}

std::vector<std::string> rate_settings(const config::RunConfig& from, const config::RunConfig& to) {
  std::vector<std::string> settings;
  for (const std::string& key : rate_keys()) {
    const config::Setting& s = *config::find_setting(key);
    if (s.get(from) != s.get(to)) settings.push_back(key + "=" + plan::text_of(s.get(to)));
  }
  return settings;
}

}  // namespace heddle::planner
