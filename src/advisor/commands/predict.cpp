// heddle predict: throughput and memory of published training runs, before and beside what was measured.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "advisor/points/baselines.h"
#include "advisor/points/prediction.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

namespace {

struct PredictOptions {
  std::string points;
  std::string out;                 // empty: only the statistics
  std::string calibration;         // empty: the built-in one
  std::string memory_calibration;  // likewise
  std::string calibrate;           // file for the calibration of throughput that `points` give; empty: none
  std::string calibrate_memory;    // likewise
  std::string held_out;            // "", "row", "model", "source" or "device"
  bool groups = false;
  bool json = false;
};

using Json = nlohmann::ordered_json;
using advisor::Calibration;
using advisor::ErrorSummary;
using advisor::HoldOut;
using advisor::PredictedPoint;

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr const char* kLayoutSweep = "bigscience";
constexpr size_t kLeastGroup = 10;  // rows
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr const char* kAdded[] = {"predicted_tokens_low",
                                  "predicted_tokens_high",
                                  "predicted_mem_low",
                                  "predicted_mem_high",
                                  "predicted_tokens_per_s_per_gpu",
                                  "predicted_peak_mem_gb",
                                  "reason"};

std::string written(const advisor::PointTable& table, const std::vector<PredictedPoint>& points) {
  std::string out;
  for (const std::string& column : table.columns) out += advisor::csv_field(column) + ",";
  out += fmt::format("{}\n", fmt::join(kAdded, ","));
  for (size_t i = 0; i < points.size(); ++i) {
    const PredictedPoint& p = points[i];
    for (const std::string& field : table.rows[i]) out += advisor::csv_field(field) + ",";
    const advisor::Prediction &t = p.tokens_per_s, &m = p.peak_bytes;
    for (const double n : {t.low, t.high, m.low / kGiB, m.high / kGiB, t.value, m.value / kGiB})
      out += n > 0 ? fmt::format("{:.2f},", n) : ",";
    out += advisor::csv_field(p.reason) + "\n";
  }
  return out;
}

const char* maker_name(cost::Family family) {
  static const char* const names[] = {"NVIDIA", "Ascend", "AMD", "Gaudi", "TPU", "others"};
  return names[advisor::maker_of(family)];
}

// Rows that print device, layout and batch, and those that do not or contradict themselves.
constexpr const char* kPrinted = "printed";
constexpr const char* kNotPrinted = "not printed";

// Groups of rows by name that a row is in.
std::vector<std::string> groups_of(const PredictedPoint& p) {
  const bool named = p.point.release.framework != "reference";  // else the device is assumed
  const char* maker = named ? maker_name(p.point.job.device.family) : "not named";
  return {"all",
          p.point.tells_time() ? kPrinted : kNotPrinted,
          maker,
          fmt::format("{}, {}", maker, p.point.job.shape.n_routed_experts > 0 ? "experts" : "dense"),
          p.point.job.device.name,
          p.point.release.framework};
}

using Pairs = std::vector<std::pair<advisor::Prediction, double>>;

// Errors of each predictor, in a group of rows and held out in one way.
struct Validation {
  HoldOut by = HoldOut::rows;
  std::string group;
  ErrorSummary estimate;
  std::vector<ErrorSummary> baselines;
};

std::vector<Validation> validate(const std::vector<PredictedPoint>& points, const advisor::Calibrations& fitted) {
  std::vector<Validation> all;
  for (const HoldOut by : advisor::kHoldOuts) {
    std::vector<PredictedPoint> held = points;
    advisor::hold_out(held, fitted, by);
    std::vector<std::vector<double>> others;
    for (const advisor::Baseline baseline : advisor::kBaselines)
      others.push_back(advisor::predict_held_out(points, baseline, by));
    std::map<std::string, std::vector<size_t>> groups;
    for (size_t i = 0; i < points.size(); ++i)
      if (points[i].has_time())
        for (const std::string& group : groups_of(points[i])) groups[group].push_back(i);
    for (const auto& [name, rows] : groups) {
      if (rows.size() < kLeastGroup && name != "all") continue;
      Validation v{by, name, {}, {}};
      Pairs pairs;
      for (const size_t i : rows) pairs.emplace_back(held[i].tokens_per_s, points[i].measured_tokens_per_s);
      v.estimate = advisor::errors_of(pairs);
      for (const std::vector<double>& other : others) {
        pairs.clear();
        for (const size_t i : rows) pairs.push_back({{other[i], 0, 0}, points[i].measured_tokens_per_s});
        v.baselines.push_back(advisor::errors_of(pairs));
      }
      if (name == "all")
        all.insert(
            all.end() - std::count_if(all.begin(), all.end(), [&](const Validation& o) { return o.by == by; }),
            std::move(v));
      else
        all.push_back(std::move(v));
    }
  }
  return all;
}

struct Summary {
  size_t rows = 0, predicted = 0, complete = 0, complete_predicted = 0, calibrated = 0;
  std::vector<Validation> validations;
  std::map<HoldOut, ErrorSummary> memory, memory_printed;
  ErrorSummary as_calibrated, memory_as_calibrated;
  double sweep_rank = 0;
};

Summary summarize(const advisor::PointTable& table, const std::vector<PredictedPoint>& points,
                  const advisor::Calibrations& fitted) {
  Summary s;
  s.rows = points.size();
  for (const PredictedPoint& p : points) {
    s.predicted += p.is_predicted();
    s.complete += p.complete;
    s.complete_predicted += p.complete && p.is_predicted();
  }
  s.as_calibrated = advisor::time_errors(points);
  s.memory_as_calibrated = advisor::memory_errors(points);
  s.validations = validate(points, fitted);
  for (const HoldOut by : advisor::kHoldOuts) {
    std::vector<PredictedPoint> held = points;
    advisor::hold_out(held, fitted, by);
    if (by == HoldOut::rows) s.sweep_rank = advisor::rank_correlation(held, table, kLayoutSweep);
    s.memory[by] = advisor::memory_errors(held);
    std::erase_if(held, [](const PredictedPoint& p) { return !p.point.tells_memory(); });
    s.memory_printed[by] = advisor::memory_errors(held);
  }
  return s;
}

Json json_of(const Summary& s, const PredictOptions& o) {
  const auto errors = [](const ErrorSummary& e) {
    return Json{{"rows", e.rows}, {"median", e.median}, {"p90", e.p90}, {"covered", e.covered}};
  };
  const auto others = [&](const Validation& v) {
    Json all = Json::object();
    for (size_t i = 0; i < v.baselines.size(); ++i)
      all[std::string(advisor::name_of(advisor::kBaselines[i]))] = {{"median", v.baselines[i].median},
                                                                    {"p90", v.baselines[i].p90}};
    return all;
  };
  Json j{{"points", o.points},
         {"out", o.out},
         {"rows", s.rows},
         {"predicted", s.predicted},
         {"complete", s.complete},
         {"complete_predicted", s.complete_predicted},
         {"calibrated_by", s.calibrated},
         {"calibration_in_use", errors(s.as_calibrated)},
         {"memory_in_use", errors(s.memory_as_calibrated)}};
  Json groups = Json::array();
  for (const Validation& v : s.validations) {
    Json one = errors(v.estimate);
    one["beside"] = others(v);
    if (v.group == "all") j[fmt::format("held_out_{}", advisor::name_of(v.by))] = one;
    one["held_out"] = advisor::name_of(v.by);
    one["group"] = v.group;
    groups.push_back(std::move(one));
  }
  for (const auto& [by, e] : s.memory) j[fmt::format("memory_held_out_{}", advisor::name_of(by))] = errors(e);
  for (const auto& [by, e] : s.memory_printed)
    j[fmt::format("memory_printed_held_out_{}", advisor::name_of(by))] = errors(e);
  j["groups"] = std::move(groups);
  j["layout_sweep_rank_correlation"] = s.sweep_rank;
  return j;
}

void print(const Summary& s, bool groups) {
  const auto right = observe::Align::right;
  observe::Table table({{"held out"},
                        {"group"},
                        {"rows", right},
                        {"median, p90", right},
                        {"in interval", right},
                        {"median MFU", right},
                        {"nearest", right},
                        {"ridge", right}});
  const auto both = [](const ErrorSummary& e) {
    return e.rows == 0 ? "" : fmt::format("{:.1f}, {:.1f} %", 100 * e.median, 100 * e.p90);
  };
  const auto row = [&](std::string_view without, std::string_view group, const ErrorSummary& e,
                       const std::vector<ErrorSummary>& others) {
    const auto other = [&](size_t i) { return i < others.size() ? both(others[i]) : ""; };
    table.row({std::string(without), std::string(group), fmt::format("{}", e.rows), both(e),
               e.rows == 0 ? "" : fmt::format("{:.0f} %", 100 * e.covered), other(0), other(1), other(2)});
  };
  for (const Validation& v : s.validations)
    if (groups || v.group == "all" || v.group == kPrinted)
      row(advisor::name_of(v.by), v.group, v.estimate, v.baselines);
  const bool with_memory = s.memory_as_calibrated.rows >= kLeastGroup;
  if (with_memory) table.rule();
  for (const auto& [by, e] : s.memory)
    if (with_memory) row(advisor::name_of(by), "peak memory", e, {});
  for (const auto& [by, e] : s.memory_printed)
    if (with_memory && groups) row(advisor::name_of(by), "peak memory, printed", e, {});
  table.rule();
  row("nothing", "all, as written", s.as_calibrated, {});
  if (with_memory) row("nothing", "peak memory, as written", s.memory_as_calibrated, {});
  if (s.as_calibrated.rows >= kLeastGroup) say("{}\n", table.text(observe::describe_terminal(1)));
  say("{} of {} rows predicted; of {} with all their dimensions {}\n", s.predicted, s.rows, s.complete,
      s.complete_predicted);
  if (s.sweep_rank != 0) say("rank correlation over the BLOOM layout sweep, held out: {:.3f}\n", s.sweep_rank);
}

// Each row's prediction, where they are few and nobody writes them to a file.
void print_rows(const advisor::PointTable& table, const std::vector<PredictedPoint>& points) {
  constexpr size_t kFew = 20;
  if (points.size() > kFew) return;
  const auto right = observe::Align::right;
  observe::Table rows({{"model"},
                       {"device"},
                       {"tokens/s a device", right},
                       {"80 % within", right},
                       {"GiB", right},
                       {"80 % within", right},
                       {"why, or assumed"}});
  for (size_t i = 0; i < points.size(); ++i) {
    const PredictedPoint& p = points[i];
    const auto range = [](const advisor::Prediction& f, double unit) {
      return f.value > 0 ? fmt::format("{:.0f} to {:.0f}", f.low / unit, f.high / unit) : "";
    };
    const auto value = [](const advisor::Prediction& f, double unit) {
      return f.value > 0 ? fmt::format("{:.0f}", f.value / unit) : "";
    };
    rows.row({std::string(table.field(i, "model").substr(0, 40)), std::string(table.field(i, "hw").substr(0, 40)),
              value(p.tokens_per_s, 1), range(p.tokens_per_s, 1), value(p.peak_bytes, kGiB),
              range(p.peak_bytes, kGiB), p.reason});
  }
  say("{}\n", rows.text(observe::describe_terminal(1)));
}

Calibration read_or(const std::string& file, const Calibration& built_in, advisor::Figure figure) {
  return file.empty() ? built_in : Calibration::read(read_file(file, kMostBytes), file, figure);
}

int predict(const PredictOptions& o) {
  const advisor::PointTable table = advisor::read_points(read_file(o.points, kMostBytes), o.points);
  for (const char* added : kAdded)
    if (table.column(added) >= 0) config_error("{}:1: column '{}' is one that predict adds", o.points, added);
  const advisor::Calibrations calibrations{
      read_or(o.calibration, Calibration::built_in(), advisor::Figure::time),
      read_or(o.memory_calibration, Calibration::built_in_memory(), advisor::Figure::memory)};
  std::vector<PredictedPoint> points = advisor::predict_points(table, calibrations);
  const advisor::Calibrations fitted = advisor::calibrate(points);
  Summary summary = summarize(table, points, fitted);
  summary.calibrated = calibrations.time.rows();
  if (!o.json) print_rows(table, points);
  for (const HoldOut by : advisor::kHoldOuts)
    if (o.held_out == advisor::name_of(by)) advisor::hold_out(points, fitted, by);
  if (!o.out.empty()) write_file(o.out, written(table, points));
  if (!o.calibrate.empty() || !o.calibrate_memory.empty()) {
    if (!o.calibrate.empty()) write_file(o.calibrate, fitted.time.text());
    if (!o.calibrate_memory.empty()) write_file(o.calibrate_memory, fitted.memory.text());
    if (!o.json)
      say("calibrated by {} measured rows of {}, memory by {}\n", fitted.time.rows(), table.rows.size(),
          fitted.memory.rows());
  }
  if (o.json) {
    say("{}\n", json_of(summary, o).dump(2));
  } else {
    print(summary, o.groups);
    if (!o.out.empty()) say("written: {}\n", o.out);
  }
  return kDone;
}

}  // namespace

void add_predict(Commands& all) {
  auto [command, options] =
      add_command(all, "predict", "Throughput and memory of training runs, from closed forms", predict);
  command.option("--points", options.points, "Comma-separated runs, a header line, one run a line")
      .required()
      .called("FILE");
  command.option("--out", options.out, "The same runs with predictions and intervals as further columns")
      .called("FILE");
  command
      .option(
          "--held-out", options.held_out,
          "In --out, predict each measured run by a calibration that has seen neither it nor, as asked, any run "
          "of its model, source or device")
      .among({"rows", "models", "sources", "devices"});
  command.option("--groups", options.groups, "Errors by maker, device and framework too");
  command.option("--calibration", options.calibration, "Measured rows to use in place of the built-in ones")
      .called("FILE");
  command.option("--memory-calibration", options.memory_calibration, "Likewise, of memory").called("FILE");
  command.option("--calibrate", options.calibrate, "Write the calibration that these runs' measurements give")
      .called("FILE");
  command.option("--calibrate-memory", options.calibrate_memory, "Likewise, of memory").called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
