// The table of figures: what each row promises holds in every output, and logs of earlier versions are read.
#include "heddle/observe/figures.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/report.h"
#include "heddle/observe/run_figures.h"
#include "heddle/observe/runs/run_comparison.h"
#include "heddle/observe/runs/watched_text.h"
#include "heddle/observe/services/mlflow.h"
#include "heddle/observe/services/prometheus.h"
#include "heddle/observe/tensorboard.h"
#include "tests/support/scratch_folder.h"

namespace heddle::observe {
namespace {

using Json = nlohmann::ordered_json;

std::string read_all(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

bool contains(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

// A value that no other row of a step has.
double value_of(const Figure& row) {
  double value = 2;
  for (const Figure* each : figures::kRows) {
    if (each == &row) break;
    value += 1;
  }
  return value;
}

void set_all(Figures& figures) {
  for (const Figure* row : figures::kRows) {
    if (row->logged == Logged::never || row->logged == Logged::layers) continue;
    if (row->each.empty()) {
      figures.set(*row, value_of(*row));
    } else {
      figures.set(*row, "7", value_of(*row));
    }
  }
}

// Three steps that have every row; the last one's numbers are the table's.
std::vector<StepMetrics> whole_run() {
  std::vector<StepMetrics> steps;
  for (int64_t i = 1; i <= 3; ++i) {
    StepMetrics& step = steps.emplace_back();
    step.step = i;
    step.wall_time_s = 1.7e9 + static_cast<double>(i);
    set_all(step);
    for (Figures& layer : step.layers = std::vector<Figures>(2))
      for (const Figure* row : figures::kRows)
        if (row->logged == Logged::layers) layer.set_list(*row, {value_of(*row), 1});
  }
  return steps;
}

TEST(Figures, RowsSayWhatTheyAre) {
  std::set<std::string_view> keys, tags;
  for (const Figure* row : figures::kRows) {
    EXPECT_TRUE(keys.insert(row->key).second) << row->key << " stands twice";
    if (!row->was.empty()) {
      EXPECT_TRUE(keys.insert(row->was).second) << row->was << " stands twice";
    }
    if (!row->tag.empty()) {
      EXPECT_TRUE(tags.insert(row->tag).second) << row->tag << " stands twice";
    }
    EXPECT_TRUE(row->meaning.ends_with('.')) << row->key;
    EXPECT_EQ(row->each.empty(), !contains(std::string(row->key), "{}")) << row->key;
    EXPECT_EQ(row->list.empty(), row->logged != Logged::layers) << row->key;
    EXPECT_TRUE(row->logged != Logged::top || !row->tag.empty()) << row->key << " has no tag";
    EXPECT_TRUE(row->group == nullptr || !row->in_run.empty() || !row->list.empty()) << row->key;
    EXPECT_EQ(find_figure(row->each.empty() ? std::string(row->key) : Figures::Number{row, "7", 0}.key()), row);
  }
}

// Whoever adds a row need not touch an output, nor this test.
TEST(Figures, EveryOutputHasEveryRow) {
  const ScratchFolder folder;
  const std::vector<StepMetrics> steps = whole_run();
  const StepMetrics& last = steps.back();

  const Json line = Json::parse(metrics_line(last));
  EXPECT_EQ(metrics_line(step_of_line(metrics_line(last))), metrics_line(last));

  TensorboardFile board(folder / "board");
  board.add(last);
  const std::string events = read_all(board.path());

  MlflowRun mlflow(folder / "mlruns", {"experiment", folder.path().string(), {}}, false);
  mlflow.add(last);
  std::set<std::string> written;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "mlruns"))
    if (entry.path().parent_path().filename() == "metrics") written.insert(entry.path().filename().string());

  const std::string scraped = metrics_text(last, "run");

  std::string shown;
  Progress progress(
      {.total_steps = 3}, {}, [&](std::string_view text) { shown += text; }, [] { return 400; });
  progress.update(last, 0);

  RunFigures run = figures_of(steps);
  for (const Figure* row : figures::kRows)
    if (row->logged == Logged::never && row->of == nullptr) run.set(*row, value_of(*row));
  const Json present = Json::parse(json_of(run)), all = Json::parse(json_of(run, JsonOf::all));
  const Json of_nothing = Json::parse(json_of({}, JsonOf::all));
  const std::string watched = watched_text(steps, 100, true);
  ReportData data;
  data.steps = steps;
  data.figures = run;
  const std::string page = report_html(data);
  const auto on_page = [&](std::string_view what) { return contains(page, escape_html(what)); };
  const std::string compared = figures_table({{"one", steps, run, {}}}).text({});

  for (const Figure* row : figures::kRows) {
    SCOPED_TRACE(row->key);
    const Figures::Number number{row, row->each.empty() ? "" : "7", value_of(*row)};
    const std::string key = number.key();
    if (row->logged == Logged::top || row->logged == Logged::extra) {
      EXPECT_EQ((row->logged == Logged::top ? line : line.at("extra")).at(key).get<double>(), number.value);
      EXPECT_TRUE(contains(events, row->tag.empty() ? "extra/" + key : std::string(row->tag)));
      EXPECT_TRUE(written.contains(key));
      EXPECT_TRUE(contains(scraped, row->meaning));
      EXPECT_TRUE(contains(scraped, fmt::format("}} {}\n", number.value)));
    }
    if (row->logged == Logged::layers) {
      EXPECT_TRUE(row->group ? line.at(std::string(row->group->key))[1].contains(std::string(row->key))
                             : line.contains(std::string(row->key)));
    }
    if (row->line.rank >= 0) {
      EXPECT_TRUE(contains(shown, text_of(*row, number.value)));
    }
    if (!row->in_run.empty()) {
      const std::string name(row->in_run);
      for (const Json* json : {&present, &all})
        EXPECT_TRUE((row->group ? json->at(std::string(row->group->key)) : *json).contains(name));
      EXPECT_EQ(of_nothing.contains(name), row->group == nullptr && row->over_steps != OverSteps::none);
    }
    if (row->watched.rows > 0) {
      EXPECT_TRUE(contains(watched, row->watched.title));
    }
    if (!row->column.empty()) {
      EXPECT_TRUE(contains(compared, row->column));
    }
    if (!row->card.title.empty()) {
      EXPECT_TRUE(on_page(row->card.title));
    }
    if (row->curve.chart != nullptr) {
      EXPECT_TRUE(on_page(row->curve.chart->title));
      EXPECT_TRUE(on_page(row->each.empty() ? row->curve.label : "layer 7"));
    }
    if (!row->fact.name.empty()) {
      const std::string_view words = row->fact.words.empty() ? row->fact.name : row->fact.words;
      EXPECT_TRUE(on_page(words));
      EXPECT_TRUE(contains(watched, words));
      if (row->group) {
        EXPECT_TRUE(contains(line_of(run, row->group), words));
      }
    }
  }
}

// The sum over steps, the last, the median, the largest: what the run has of each row follows from the row.
TEST(Figures, RunsFollowFromTheirSteps) {
  std::vector<StepMetrics> steps(5);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = static_cast<int64_t>(i + 1);
    for (const Figure* row : figures::kRows)
      if (row->each.empty() && row->list.empty() && row->of == nullptr && i != 4)
        steps[i].set(*row, std::vector<double>{3, 9, 1, 4}[i]);
  }
  const RunFigures run = figures_of(steps);
  for (const Figure* row : figures::kRows) {
    SCOPED_TRACE(row->key);
    if (!row->each.empty() || !row->list.empty()) continue;
    switch (row->over_steps) {
      case OverSteps::none: EXPECT_FALSE(run.has(*row)); break;
      case OverSteps::last: EXPECT_EQ(run.get(*row), 4); break;
      case OverSteps::sum: EXPECT_EQ(run.get(*row), 17); break;
      case OverSteps::median: EXPECT_EQ(run.get(*row), 4); break;
      case OverSteps::worst: EXPECT_EQ(run.get(*row), 9); break;
      case OverSteps::recent: EXPECT_FALSE(run.has(*row)) << "the last step has none"; break;
      case OverSteps::step_of_last: EXPECT_EQ(run.get(*row), 4); break;
    }
  }
}

TEST(Figures, RowsOutsideTheTableAreRefused) {
  static constexpr Figure stray{.key = "stray", .meaning = "Of nobody."};
  Figures figures;
  EXPECT_THROW(figures.set(stray, 1), InternalError);
  EXPECT_THROW(figures.set_list(stray, {1}), InternalError);
}

TEST(Figures, FamiliesAreReadBehindSingleRows) {
  std::string index;
  EXPECT_EQ(find_figure("engine_bytes", &index), &figures::kEngineBytes);
  EXPECT_EQ(find_figure("comm.dp_bytes", &index), &figures::kChannelBytes);
  EXPECT_EQ(index, "comm.dp");
  EXPECT_EQ(find_figure("_bytes"), nullptr) << "of no channel";
  EXPECT_EQ(find_figure("nothing"), nullptr);
}

// A line as versions wrote it that had a map of further numbers: names of today, one that has another now, one that
// is gone, a family.
TEST(Figures, EarlierLogsAreRead) {
  const StepMetrics step = step_of_line(
      R"({"step":3,"wall_time_s":1764100000.5,"lm_loss":3.25,"learning_rate":0.001,"gradient_norm":"inf",)"
      R"("step_s":0.5,"trained_s":1.5,"tokens":768,"tokens_per_s":512,"flops_per_s":1e9,"expert_imbalance":1.5,)"
      R"("copy_rows":4,"copies_even":2,"arena_live_peak_bytes":100,"weights_digest":"0123456789abcdef",)"
      R"("extra":{"arena_beyond_forecast_bytes":64,"bias_update_rate":0.02,"dropped_share.layer_12":0.25,)"
      R"("comm.dp_bytes":4096,"comm.dp_seconds":0.125,"moves_even":1,"updates_ahead_of_norm":2},"expert_loads":[[1,2],[3,0]],)"
      R"("copies":[{"routed":[3,0],"computed":[2,1],"rows":1,"crossings_saved":0,"weight_bytes":8,"gradient_bytes":8,)"
      R"("by_counts":1,"by_history":0,"even":0,"not_worth":0},{"routed":[1,2],"computed":[1,2],"rows":3,"even":2}]})");
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.weights_digest, "0123456789abcdef");
  EXPECT_EQ(step.get(figures::kLoss), 3.25);
  EXPECT_EQ(step.get(figures::kGradientNorm), std::numeric_limits<double>::infinity());
  EXPECT_EQ(step.get(figures::kReplicaRows), 4);
  EXPECT_EQ(step.get(figures::kGrownBeyondPrediction), 64);
  EXPECT_EQ(step.get(figures::kBiasUpdateRate), 0.02);
  EXPECT_EQ(step.get(figures::kMovesEven), 1);
  EXPECT_EQ(step.get(figures::kArenaReservedPeak), 100) << "early logs have the one peak";
  EXPECT_EQ(step.family(figures::kDroppedShare),
            (std::vector<Figures::Number>{{&figures::kDroppedShare, "12", 0.25}}));
  EXPECT_EQ(step.family(figures::kChannelBytes),
            (std::vector<Figures::Number>{{&figures::kChannelBytes, "comm.dp", 4096}}));
  ASSERT_EQ(step.layers.size(), 2u);
  EXPECT_EQ(step.layers[1].list(figures::kExpertLoads), (std::vector<double>{3, 0}));
  EXPECT_EQ(step.layers[0].list(figures::kComputedRows), (std::vector<double>{2, 1}));
  EXPECT_EQ(step.layers[1].get(figures::kReplicaRows), 3);
  EXPECT_EQ(step.layers[1].get(figures::kReplicasEven), 2);
  EXPECT_FALSE(contains(metrics_line(step), "arena_beyond_forecast_bytes"));
}

}  // namespace
}  // namespace heddle::observe
