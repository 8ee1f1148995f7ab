#include "heddle/planner/memory/budget_share.h"

#include "heddle/observe/units.h"

namespace heddle::planner {

std::vector<std::string> share_settings(const config::RunConfig& config, const train::Sharing& sharing,
                                        const std::function<void(const std::string& line)>& tell) {
  if (config.plan.memory.budget_share == 0) return {};
  const int64_t bytes = train::memory_limit_of(config, sharing);
  tell(fmt::format("memory.budget {:.10g}%: {} of what a rank's device has", 100 * config.plan.memory.budget_share,
                   observe::bytes_text(static_cast<double>(bytes))));
  return {fmt::format("memory.budget={}", bytes)};
}

}  // namespace heddle::planner
