#include "heddle/session/slow/read_op_times.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::session {

OpTimesTable read_op_times(std::string_view text, const std::string& path) {
  using Json = nlohmann::json;
  constexpr int kMostDepth = 8;
  constexpr int64_t kMost = int64_t{1} << 40;
  const Json file = formats::parse_json(text, path, kMostDepth);
  const auto refuse = [&](const std::string& what) { config_error("{}: no times of ops: {}", path, what); };
  const auto member = [&](const Json& of, const char* key) -> const Json& {
    if (!of.is_object()) refuse(fmt::format("{} where an object is expected", formats::shown(of)));
    const auto at = of.find(key);
    if (at == of.end()) refuse(fmt::format("no '{}'", key));
    return *at;
  };
  const auto count = [&](const Json& value, const char* key) {
    const bool whole = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(kMost);
    if (!whole) refuse(fmt::format("'{}' is {}, a whole number is expected", key, formats::shown(value)));
    return value.get<int64_t>();
  };
  const auto words = [&](const Json& value, const char* key) {
    if (!value.is_string()) refuse(fmt::format("'{}' is {}, a text is expected", key, formats::shown(value)));
    return value.get<std::string>();
  };
  const auto number = [&](const Json& value, const char* key) {
    if (!value.is_number()) refuse(fmt::format("'{}' is {}, a number is expected", key, formats::shown(value)));
    return value.get<double>();
  };
  OpTimesTable table;
  const Json& steps = member(file, "steps");
  if (!steps.is_array() || steps.size() != 2) refuse("'steps' is not the first and the last");
  table.first_step = count(steps[0], "steps");
  table.last_step = count(steps[1], "steps");
  table.ranks = count(member(file, "ranks"), "ranks");
  const Json& ops = member(file, "ops");
  if (!ops.is_array()) refuse("'ops' is no list");
  for (const Json& op : ops) {
    OpTimesTable::Row row{words(member(op, "op"), "op"), words(member(op, "phase"), "phase"),
                          words(member(op, "stream"), "stream"), number(member(op, "calls"), "calls")};
    row.slowest_rank = count(member(op, "slowest_rank"), "slowest_rank");
    const Json& seconds = member(op, "seconds");
    if (!seconds.is_array() || row.slowest_rank >= std::ssize(seconds))
      refuse(fmt::format("'slowest_rank' is {}, of {} ranks' times", row.slowest_rank,
                         seconds.is_array() ? seconds.size() : 0));
    row.slowest_s = number(seconds[row.slowest_rank], "seconds");
    if (const Json& times = member(op, "over_others"); !times.is_null())
      row.over_others = number(times, "over_others");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace heddle::session
