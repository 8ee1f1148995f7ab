#include "heddle/model/statistic.h"

#include <algorithm>

namespace heddle::model {

std::string name_of(const Statistic& statistic) {
  const std::string name(statistic.kind->name);
  return statistic.of < 0 ? name : fmt::format("{}.{}", name, statistic.of);
}

ir::ValueId add_statistic(ir::Listing& listing, std::vector<Statistic>& statistics, Statistic statistic,
                          ir::Shape shape, Dtype dtype) {
  ir::Value value;
  value.name = name_of(statistic);
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.role = ir::Role::statistic;
  statistic.value = listing.add_value(std::move(value));
  statistics.push_back(statistic);
  return statistic.value;
}

ir::ValueId value_of(const std::vector<Statistic>& statistics, const StatisticKind& kind, int of) {
  const auto at = std::find_if(statistics.begin(), statistics.end(),
                               [&](const Statistic& s) { return s.kind == &kind && s.of == of; });
  return at == statistics.end() ? ir::none : at->value;
}

}  // namespace heddle::model
