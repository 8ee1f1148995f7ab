#include "heddle/observe/metrics_log.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/observe/experts/load_frames.h"

namespace heddle::observe {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostSteps = 20'000'000;

ordered_json number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Whole numbers are written as such: 4096, not 4096.0.
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<int64_t>(value);
  return value;
}

double number_from(const ordered_json& json, std::string_view key) {
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  config_error("'{}' is not a number", key);
}

// Lines that are no steps: the first is told of, or thrown at once.
struct Broken {
  BrokenLines what;
  int64_t count = 0;
  std::string first;

  void add(const std::string& path, int64_t line, std::string_view why) {
    const std::string message = fmt::format("{}:{}: {}", path, line, why);
    if (what == BrokenLines::refuse) throw ConfigError(message);
    if (count++ == 0) first = message;
  }
  void tell(std::vector<std::string>& warnings) const {
    if (count == 0) return;
    warnings.push_back(count == 1 ? fmt::format("{}; the line is passed over", first)
                                  : fmt::format("{}; this and {} more lines are passed over", first, count - 1));
  }
};

// Walks the lines of a log. `visit` gets each step and the offset of its line, and says whether to go on; the
// result is the offset at which the torn line begins, if there is one.
std::optional<int64_t> walk(const std::string& path, Broken& broken,
                            const std::function<bool(StepMetrics&&, int64_t)>& visit) {
  // A read of a directory fails only later, without saying why.
  if (std::filesystem::is_directory(path))
    throw SystemError(EISDIR, fmt::format("cannot read {}: a directory", path));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SystemError(errno, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  std::string chunk(1 << 16, '\0');
  std::string line;
  bool too_long = false;  // the line's rest is only read over
  int64_t line_start = 0, offset = 0, number = 1;
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0) {
    std::string_view rest(chunk.data(), static_cast<size_t>(in.gcount()));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      if (!too_long) line += rest.substr(0, end);
      offset += static_cast<int64_t>(end == rest.npos ? rest.size() : end + 1);
      if (line.size() > kLongestLineBytes) {
        broken.add(path, number, fmt::format("a line of more than {} bytes is no step", kLongestLineBytes));
        too_long = true;
        line.clear();
      }
      if (end == rest.npos) break;
      rest.remove_prefix(end + 1);
      if (!too_long) {
        std::optional<StepMetrics> metrics;
        try {
          metrics = step_of_line(line);
        } catch (const ConfigError& error) {
          broken.add(path, number, error.what());
        }
        if (metrics && !visit(std::move(*metrics), line_start)) return std::nullopt;
      }
      too_long = false;
      line.clear();
      line_start = offset;
      ++number;
    }
  }
  if (in.bad()) throw SystemError(errno, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  // A line without its end was being written when the run died, even if what is there happens to parse.
  return line_start == offset ? std::nullopt : std::optional(line_start);
}

ordered_json numbers_json(const std::vector<double>& numbers) {
  ordered_json row = ordered_json::array();
  for (const double number : numbers) row.push_back(number_json(number));
  return row;
}

ordered_json copies_json(const LayerCopies& layer) {
  ordered_json json{{"routed", numbers_json(layer.routed_H)}, {"computed", numbers_json(layer.computed_H)}};
  for (const CopyField& field : copy_fields())
    json[std::string(field.key)] = number_json(layer.figures.*field.of_layer);
  return json;
}

std::vector<double> numbers_from(const ordered_json& row, std::string_view key) {
  if (!row.is_array()) config_error("'{}' holds something that is not an array", key);
  std::vector<double> numbers;
  for (const ordered_json& value : row) numbers.push_back(number_from(value, key));
  return numbers;
}

LayerCopies copies_from(const ordered_json& json) {
  if (!json.is_object()) config_error("'copies' holds something that is not an object");
  LayerCopies layer;
  for (const auto& [key, numbers] :
       {std::pair{"routed", &layer.routed_H}, std::pair{"computed", &layer.computed_H}}) {
    if (const auto found = json.find(key); found != json.end()) *numbers = numbers_from(*found, key);
  }
  for (const CopyField& field : copy_fields()) {
    if (const auto found = json.find(std::string(field.key)); found != json.end())
      layer.figures.*field.of_layer = number_from(*found, field.key);
  }
  return layer;
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  ordered_json json;
  json["step"] = metrics.step;
  json["wall_time_s"] = number_json(metrics.wall_time_s);
  for (const MetricField& field : metric_fields()) {
    if (const auto& value = metrics.*field.value) json[std::string(field.key)] = number_json(*value);
  }
  if (!metrics.weights_digest.empty()) json["weights_digest"] = metrics.weights_digest;
  if (!metrics.extra.empty()) {
    ordered_json& extra = json["extra"] = ordered_json::object();
    for (const auto& [key, value] : metrics.extra) extra[key] = number_json(value);
  }
  if (!metrics.expert_loads_LE.empty()) {
    ordered_json& loads = json["expert_loads"] = ordered_json::array();
    for (const std::vector<double>& loads_E : metrics.expert_loads_LE) loads.push_back(numbers_json(loads_E));
  }
  if (!metrics.copies_L.empty()) {
    ordered_json& layers = json["copies"] = ordered_json::array();
    for (const LayerCopies& layer : metrics.copies_L) layers.push_back(copies_json(layer));
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

StepMetrics step_of_line(std::string_view line) {
  const ordered_json json = ordered_json::parse(line, nullptr, false);
  if (json.is_discarded()) config_error("not a JSON object");
  if (!json.is_object()) config_error("a JSON {} where an object is expected", json.type_name());
  StepMetrics metrics;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer() || step->get<int64_t>() < 0) {
    config_error("no 'step' that is a whole number");
  }
  metrics.step = step->get<int64_t>();
  if (const auto time = json.find("wall_time_s"); time != json.end()) {
    metrics.wall_time_s = number_from(*time, "wall_time_s");
  }
  for (const MetricField& field : metric_fields()) {
    const auto found = json.find(std::string(field.key));
    if (found != json.end() && !found->is_null()) metrics.*field.value = number_from(*found, field.key);
  }
  if (const auto digest = json.find("weights_digest"); digest != json.end()) {
    if (!digest->is_string()) config_error("'weights_digest' is not a string");
    metrics.weights_digest = digest->get<std::string>();
  }
  if (const auto extra = json.find("extra"); extra != json.end()) {
    if (!extra->is_object()) config_error("'extra' is not an object");
    for (const auto& [key, value] : extra->items()) metrics.extra[key] = number_from(value, key);
  }
  if (const auto loads = json.find("expert_loads"); loads != json.end()) {
    if (!loads->is_array()) config_error("'expert_loads' is not an array");
    for (const ordered_json& row : *loads) metrics.expert_loads_LE.push_back(numbers_from(row, "expert_loads"));
  }
  if (const auto layers = json.find("copies"); layers != json.end()) {
    if (!layers->is_array()) config_error("'copies' is not an array");
    for (const ordered_json& layer : *layers) metrics.copies_L.push_back(copies_from(layer));
  }
  return metrics;
}

MetricsLog MetricsLog::begin(const std::string& path) {
  return MetricsLog(OutputFile(path, OutputFile::Open::begin));
}

MetricsLog MetricsLog::resume(const std::string& path, int64_t next_step, std::vector<std::string>& warnings) {
  if (!std::filesystem::exists(path)) return begin(path);
  std::optional<int64_t> cut;
  int64_t first_cut_step = 0;
  Broken broken{BrokenLines::skip};
  const std::optional<int64_t> torn = walk(path, broken, [&](StepMetrics&& metrics, int64_t at) {
    if (metrics.step < next_step) return true;
    cut = at;
    first_cut_step = metrics.step;
    return false;
  });
  broken.tell(warnings);
  OutputFile file(path, OutputFile::Open::append);
  if (cut) {
    warnings.push_back(
        fmt::format("{}: steps from {} on will run again; their lines are cut off", path, first_cut_step));
    file.truncate(*cut);
  } else if (torn) {
    warnings.push_back(fmt::format("{}: the last line is torn; it is cut off", path));
    file.truncate(*torn);
  }
  return MetricsLog(std::move(file));
}

void MetricsLog::add(const StepMetrics& metrics) { file_.write_whole(metrics_line(metrics) + '\n'); }

MetricsHistory read_metrics(const std::string& path, BrokenLines what) {
  MetricsHistory history;
  Broken broken{what};
  std::vector<StepMetrics>& steps = history.steps;
  LoadFrames frames;
  const std::optional<int64_t> torn = walk(path, broken, [&](StepMetrics&& metrics, int64_t) {
    if (!steps.empty() && metrics.step <= steps.back().step) {
      const size_t before = steps.size();
      while (!steps.empty() && metrics.step <= steps.back().step) steps.pop_back();
      frames.cut(steps.size());
      history.warnings.push_back(fmt::format("{}: step {} comes again; {} earlier lines are dropped", path,
                                             metrics.step, before - steps.size()));
    }
    if (steps.size() >= kMostSteps && broken.what == BrokenLines::skip) return false;
    if (steps.size() >= kMostSteps) config_error("{}: more than {} steps", path, kMostSteps);
    steps.push_back(std::move(metrics));
    frames.added(steps);
    return true;
  });
  broken.tell(history.warnings);
  if (torn) history.warnings.push_back(fmt::format("{}: the last line is torn; it is dropped", path));
  return history;
}

}  // namespace heddle::observe
