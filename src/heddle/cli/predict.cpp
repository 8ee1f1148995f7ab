// heddle predict: throughput and memory of published training runs, before and beside what was measured.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/search/predict/prediction.h"

namespace heddle::cli {

namespace {

struct PredictOptions {
  std::string points;
  std::string out;          // empty: only the statistics
  std::string calibration;  // empty: the built-in one
  std::string calibrate;    // where to write the scalars that `points` give; empty: nowhere
  std::string held_out;     // "", "rows" or "models"
  bool json = false;
};

using Json = nlohmann::ordered_json;
using search::ErrorSummary;
using search::HoldOut;
using search::PredictedPoint;

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr const char* kLayoutSweep = "bigscience";

struct Summary {
  size_t rows = 0, predicted = 0, complete = 0, complete_predicted = 0, scalars = 0;
  ErrorSummary as_calibrated, by_rows, by_models, constant_rows, constant_models, memory;
  double sweep_rank = 0;
};

std::string written(const search::PointTable& table, const std::vector<PredictedPoint>& points) {
  std::string out;
  for (const std::string& column : table.columns) out += search::csv_field(column) + ",";
  out += "predicted_tokens_per_s_per_gpu,predicted_peak_mem_gb,reason\n";
  for (size_t i = 0; i < points.size(); ++i) {
    const PredictedPoint& p = points[i];
    for (const std::string& field : table.rows[i]) out += search::csv_field(field) + ",";
    if (p.tokens_per_s > 0) out += fmt::format("{:.2f}", p.tokens_per_s);
    out += ",";
    if (p.has_memory) out += fmt::format("{:.2f}", p.estimate.peak_bytes / (1024.0 * 1024 * 1024));
    out += ",";
    out += search::csv_field(p.reason) + "\n";
  }
  return out;
}

Summary summarize(const search::PointTable& table, const std::vector<PredictedPoint>& points) {
  Summary s;
  s.rows = points.size();
  for (const PredictedPoint& p : points) {
    s.predicted += p.tokens_per_s > 0;
    s.complete += p.complete;
    s.complete_predicted += p.complete && p.tokens_per_s > 0;
  }
  s.as_calibrated = search::time_errors(points);
  s.memory = search::memory_errors(points);
  std::vector<PredictedPoint> held = points;
  search::hold_out(held, table, HoldOut::rows);
  s.by_rows = search::time_errors(held);
  s.sweep_rank = search::rank_correlation(held, table, kLayoutSweep);
  search::hold_out(held, table, HoldOut::models);
  s.by_models = search::time_errors(held);
  s.constant_rows = search::constant_utilization_errors(points, table, HoldOut::rows);
  s.constant_models = search::constant_utilization_errors(points, table, HoldOut::models);
  return s;
}

Json json_of(const Summary& s, const PredictOptions& o) {
  const auto errors = [](const ErrorSummary& e) {
    return Json{{"rows", e.rows}, {"median", e.median}, {"p90", e.p90}};
  };
  return Json{{"points", o.points},
              {"out", o.out},
              {"rows", s.rows},
              {"predicted", s.predicted},
              {"complete", s.complete},
              {"complete_predicted", s.complete_predicted},
              {"scalars", s.scalars},
              {"held_out_rows", errors(s.by_rows)},
              {"held_out_models", errors(s.by_models)},
              {"constant_utilization_rows", errors(s.constant_rows)},
              {"constant_utilization_models", errors(s.constant_models)},
              {"calibration_in_use", errors(s.as_calibrated)},
              {"memory", errors(s.memory)},
              {"layout_sweep_rank_correlation", s.sweep_rank}};
}

void print(const Summary& s) {
  observe::Table table({{"predictor"},
                        {"calibrated without"},
                        {"rows", observe::Align::right},
                        {"median", observe::Align::right},
                        {"p90", observe::Align::right}});
  const auto row = [&](const char* what, const char* without, const ErrorSummary& e) {
    table.row({what, without, fmt::format("{}", e.rows), fmt::format("{:.1f} %", 100 * e.median),
               fmt::format("{:.1f} %", 100 * e.p90)});
  };
  row("estimate × scalar", "the row's fifth", s.by_rows);
  row("estimate × scalar", "the row's model", s.by_models);
  row("constant utilization", "the row's fifth", s.constant_rows);
  row("constant utilization", "the row's model", s.constant_models);
  table.rule();
  row("as written", "nothing", s.as_calibrated);
  row("peak memory", "(no calibration)", s.memory);
  fmt::print("{}", table.text(observe::describe_terminal(1)));
  fmt::print("\n{} of {} rows predicted; of {} with all their dimensions {}\n", s.predicted, s.rows, s.complete,
             s.complete_predicted);
  if (s.sweep_rank != 0)
    fmt::print("rank correlation over the BLOOM layout sweep, held out: {:.3f}\n", s.sweep_rank);
}

int predict(const PredictOptions& o) {
  const search::PointTable table = search::read_points(read_file(o.points, kMostBytes), o.points);
  for (const char* added : {"predicted_tokens_per_s_per_gpu", "predicted_peak_mem_gb", "reason"})
    if (table.column(added) >= 0) config_error("{}:1: column '{}' is one that predict adds", o.points, added);
  const search::Calibration calibration =
      o.calibration.empty() ? search::Calibration::built_in()
                            : search::Calibration::read(read_file(o.calibration, kMostBytes), o.calibration);
  std::vector<PredictedPoint> points = search::predict_points(table, calibration);
  Summary summary = summarize(table, points);
  summary.scalars = calibration.groups();
  if (o.held_out == "rows") search::hold_out(points, table, HoldOut::rows);
  if (o.held_out == "models") search::hold_out(points, table, HoldOut::models);
  if (!o.out.empty()) write_file(o.out, written(table, points));
  if (!o.calibrate.empty()) {
    const search::Calibration fitted = search::calibrate(points);
    write_file(o.calibrate, fitted.text());
    if (!o.json) fmt::print("{} scalars of {} rows in {}\n\n", fitted.groups(), table.rows.size(), o.calibrate);
  }
  if (o.json) {
    fmt::print("{}\n", json_of(summary, o).dump(2));
  } else {
    print(summary);
    if (!o.out.empty()) fmt::print("written: {}\n", o.out);
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
  command.option("--out", options.out, "The same runs with predictions as further columns").called("FILE");
  command
      .option("--held-out", options.held_out,
              "In --out, predict each run by a calibration that has seen neither its fifth of the rows (rows) nor "
              "its model (models)")
      .among({"rows", "models"});
  command.option("--calibration", options.calibration, "Scalars to use in place of the built-in ones")
      .called("FILE");
  command.option("--calibrate", options.calibrate, "Write the scalars that these runs' measurements give")
      .called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
