#include "heddle/observe/metrics_log.h"

#include <algorithm>
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
#include "heddle/base/files/pinned_folder.h"
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

// Lines that are no steps: the first is reported, or thrown at once.
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
    warnings.push_back(count == 1 ? fmt::format("{}; the line is skipped", first)
                                  : fmt::format("{}; this and {} more lines are skipped", first, count - 1));
  }
};

// Steps that a log has no line of, between those that it has. Where a step comes again it is counted from there.
struct Missing {
  int64_t last = 0;  // step that was seen
  int64_t count = 0, first = 0;

  void seen(int64_t step) {
    if (step > last + 1) add(last + 1, step - last - 1);
    last = step;
  }
  void add(int64_t from, int64_t steps) {
    if (count == 0) first = from;
    count += steps;
  }
  void tell(const std::string& path, std::vector<std::string>& warnings) const {
    if (count == 0) return;
    warnings.push_back(count == 1 ? fmt::format("{}: step {} has no line", path, first)
                                  : fmt::format("{}: {} steps have no line, the first is {}", path, count, first));
  }
};

// Walks the lines of a log. `visit` gets each step and the offset of its line, and says whether to go on. Returns
// the offset at which the torn line begins, if there is one.
std::optional<int64_t> walk(const std::string& path, Broken& broken,
                            const std::function<bool(StepMetrics&&, int64_t)>& visit) {
  // A read of a directory fails only later, without saying why.
  if (std::filesystem::is_directory(held_path(path)))
    throw SystemError(EISDIR, fmt::format("cannot read {}: a directory", path));
  errno = 0;
  std::ifstream in(held_path(path), std::ios::binary);
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

std::vector<double> numbers_from(const ordered_json& row, std::string_view key) {
  if (!row.is_array()) config_error("'{}' holds something that is not an array", key);
  std::vector<double> numbers;
  for (const ordered_json& value : row) numbers.push_back(number_from(value, key));
  return numbers;
}

// Writes the layers as an array: a list for itself, or a group's figures of the layer as an object.
void write_layers(ordered_json& json, const Figures& figures) {
  for (const Figure* row : figures::kRows) {
    if (row->logged != Logged::layers) continue;
    for (size_t i = 0; i < figures.layers.size(); ++i) {
      const std::vector<double>& numbers = figures.layers[i].list(*row);
      if (numbers.empty()) continue;
      ordered_json& place = json[std::string(row->group ? row->group->key : row->key)][i];
      (row->group ? place[std::string(row->key)] : place) = numbers_json(numbers);
    }
  }
  for (size_t i = 0; i < figures.layers.size(); ++i)
    for (const Figures::Number& number : figures.layers[i].numbers())
      if (const FigureGroup* group = number.row->group)
        json[std::string(group->key)][i][std::string(number.row->in_run)] = number_json(number.value);
}

// The layers of an array, null where a layer has none of these figures.
void each_layer(const ordered_json& json, std::string_view key, Figures& figures,
                const std::function<void(const ordered_json&, Figures&)>& read) {
  const auto found = json.find(std::string(key));
  if (found == json.end()) return;
  if (!found->is_array()) config_error("'{}' is not an array", key);
  figures.layers.resize(std::max(figures.layers.size(), found->size()));
  for (size_t i = 0; i < found->size(); ++i)
    if (!(*found)[i].is_null()) read((*found)[i], figures.layers[i]);
}

void read_layers(const ordered_json& json, Figures& figures) {
  for (const Figure* row : figures::kRows) {
    if (row->logged != Logged::layers || row->group != nullptr) continue;
    each_layer(json, row->key, figures, [&](const ordered_json& numbers, Figures& layer) {
      layer.set_list(*row, numbers_from(numbers, row->key));
    });
  }
  for (const FigureGroup* group : figures::kGroups) {
    each_layer(json, group->key, figures, [&](const ordered_json& object, Figures& layer) {
      if (!object.is_object()) config_error("'{}' holds something that is not an object", group->key);
      for (const Figure* row : figures::kRows) {
        if (row->group != group) continue;
        const std::string key(row->list.empty() ? row->in_run : row->key);
        const auto found = object.find(key);
        if (found == object.end()) continue;
        if (row->list.empty()) {
          layer.set(*row, number_from(*found, key));
        } else {
          layer.set_list(*row, numbers_from(*found, key));
        }
      }
    });
  }
}

// Reads a number. A key that is no figure's, or no longer, is only checked for its form.
void read_number(const std::string& key, const ordered_json& json, Logged logged, Figures& figures) {
  std::string index;
  const Figure* row = find_figure(key, &index);
  const bool known = row != nullptr && row->logged == logged && row->list.empty();
  if (logged == Logged::top && (!known || json.is_null())) return;
  const double value = number_from(json, key);
  if (known) figures.set(*row, index, value);
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  ordered_json json;
  json["step"] = metrics.step;
  json["wall_time_s"] = number_json(metrics.wall_time_s);
  ordered_json extra = ordered_json::object();
  for (const Figures::Number& number : metrics.numbers())
    (number.row->logged == Logged::extra ? extra : json)[number.key()] = number_json(number.value);
  if (!metrics.weights_digest.empty()) json["weights_digest"] = metrics.weights_digest;
  if (!extra.empty()) json["extra"] = std::move(extra);
  write_layers(json, metrics);
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
  for (const auto& [key, value] : json.items()) read_number(key, value, Logged::top, metrics);
  if (const auto digest = json.find("weights_digest"); digest != json.end()) {
    if (!digest->is_string()) config_error("'weights_digest' is not a string");
    metrics.weights_digest = digest->get<std::string>();
  }
  if (const auto extra = json.find("extra"); extra != json.end()) {
    if (!extra->is_object()) config_error("'extra' is not an object");
    for (const auto& [key, value] : extra->items()) read_number(key, value, Logged::extra, metrics);
  }
  read_layers(json, metrics);
  // Early logs have the one peak alone.
  if (const auto live = metrics.get(figures::kArenaLivePeak); live && !metrics.has(figures::kArenaReservedPeak))
    metrics.set(figures::kArenaReservedPeak, *live);
  return metrics;
}

MetricsLog MetricsLog::begin(const std::string& path) {
  return MetricsLog(OutputFile(path, OutputFile::Open::begin));
}

MetricsLog MetricsLog::resume(const std::string& path, int64_t next_step, std::vector<std::string>& warnings) {
  if (!std::filesystem::exists(held_path(path))) {
    if (next_step > 1)
      warnings.push_back(fmt::format("{}: the log is gone; it begins with step {}", path, next_step));
    return begin(path);
  }
  std::optional<int64_t> cut;
  int64_t first_cut_step = 0;
  Broken broken{BrokenLines::skip};
  Missing missing;
  const std::optional<int64_t> torn = walk(path, broken, [&](StepMetrics&& metrics, int64_t at) {
    if (metrics.step < next_step) {
      missing.seen(metrics.step);
      return true;
    }
    cut = at;
    first_cut_step = metrics.step;
    return false;
  });
  broken.tell(warnings);
  missing.tell(path, warnings);
  if (missing.last < next_step - 1)
    warnings.push_back(
        fmt::format("{}: the log ends with step {}, and the run goes on after step {}: is the state of "
                    "another run, or has the log lost its end?",
                    path, missing.last, next_step - 1));
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
  Missing missing;
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
    missing.seen(metrics.step);
    steps.push_back(std::move(metrics));
    frames.added(steps);
    return true;
  });
  broken.tell(history.warnings);
  missing.tell(path, history.warnings);
  if (torn) history.warnings.push_back(fmt::format("{}: the last line is torn; it is dropped", path));
  return history;
}

}  // namespace heddle::observe
