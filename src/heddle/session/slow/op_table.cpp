#include "heddle/session/slow/op_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/statistics.h"
#include "heddle/ir/walk/streams.h"
#include "heddle/session/slow/slow_op.h"

namespace heddle::session {

std::string op_times_json(const ir::StepProgram& program, const std::vector<OpTimes>& of_rank,
                          const config::StepRange& steps) {
  using Json = nlohmann::ordered_json;
  struct Row {
    std::vector<double> seconds;  // seconds by rank; −1: it does not run there
    double calls = 0, most_s = 0;
  };
  std::map<std::pair<int32_t, uint32_t>, Row> rows;
  for (size_t r = 0; r < of_rank.size(); ++r) {
    for (const OpTime& time : of_rank[r]) {
      Row& row = rows[time.key()];
      row.seconds.resize(of_rank.size(), -1);
      row.seconds[r] = time.seconds();
      row.calls = std::max(row.calls, time.calls);
      row.most_s = std::max(row.most_s, time.seconds());
    }
  }
  std::vector<std::pair<std::pair<int32_t, uint32_t>, const Row*>> order;
  for (const auto& [key, row] : rows) order.emplace_back(key, &row);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second->most_s > b.second->most_s; });
  const ir::StreamTable streams(program);
  Json json{{"steps", {steps.first, steps.last}}, {"ranks", of_rank.size()}, {"ops", Json::array()}};
  for (const auto& [key, row] : order) {
    const ir::Listing& listing = program.listings.at(static_cast<size_t>(key.first));
    const ir::Op& op = listing.ops.at(key.second);
    Json seconds = Json::array();
    std::vector<double> others;
    size_t slowest = 0;
    for (size_t r = 0; r < row->seconds.size(); ++r) {
      seconds.push_back(row->seconds[r] < 0 ? Json() : Json(row->seconds[r]));
      if (row->seconds[r] > row->seconds[slowest]) slowest = r;
    }
    for (size_t r = 0; r < row->seconds.size(); ++r) {
      if (r != slowest && row->seconds[r] >= 0) others.push_back(row->seconds[r]);
    }
    const double usual_s = quantile(others, 0.5);
    json["ops"].push_back({{"op", label_of(listing, op)},
                           {"phase", ir::name_of(op.phase)},
                           {"stream", streams.names()[static_cast<size_t>(streams.of(key.first, key.second))]},
                           {"layer", op.layer},
                           {"calls", row->calls},
                           {"slowest_rank", slowest},
                           {"over_others", usual_s > 0 ? Json(row->most_s / usual_s) : Json()},
                           {"seconds", seconds}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heddle::session
