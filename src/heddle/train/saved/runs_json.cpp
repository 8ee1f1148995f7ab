#include "heddle/train/saved/runs_json.h"

#include <nlohmann/json.hpp>

namespace heddle::train {

using nlohmann::json;

json json_of(const std::vector<Runs>& runs) {
  json all = json::array();
  for (const Runs& r : runs) all.push_back({r.whole, r.count, r.stride, r.times});
  return all;
}

std::vector<Runs> runs_from(const json& told) {
  std::vector<Runs> runs;
  for (const json& r : told) {
    runs.push_back(
        {r.at(0).get<int64_t>(), r.at(1).get<int64_t>(), r.at(2).get<int64_t>(), r.at(3).get<int64_t>(), 0});
  }
  return runs;
}

}  // namespace heddle::train
