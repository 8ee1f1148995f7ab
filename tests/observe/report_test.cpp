// The report as a whole: complete, self-contained, escaped, and silent about what it has not.
#include "heddle/observe/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include "heddle/base/error.h"
#include "tests/observe/synthetic_run.h"

namespace heddle::observe {
namespace {

bool contains_report(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

TEST(Report, ShowsAWholeRun) {
  const std::string text = report_html(synthetic_run());
  for (const char* heading : {"Learning",
                              "Speed",
                              "Experts",
                              "Memory",
                              "Timeline",
                              "What it writes",
                              "Setup",
                              "Loss of the last step",
                              "Held-out loss",
                              "perplexity",
                              "Tokens per second",
                              "Model FLOP/s",
                              "Peak memory",
                              "unigram entropy",
                              "Gradient norm",
                              "Learning rate",
                              "Expert load ÷ mean at step 5000",
                              "Tensors at the peak",
                              "32 smaller ones",
                              "capacity 8.0 GiB"}) {
    EXPECT_TRUE(contains_report(text, heading)) << heading;
  }
  EXPECT_LT(text.size(), 2'500'000u);
}

// A reader looks for what was set; a printed page has nothing else.
TEST(Report, DefaultsAreFoldedBehindWhatWasSet) {
  ReportData data = synthetic_run();
  data.configuration = {{"train.learning_rate", "0.0015"}};
  data.defaults = {{"train.clip_norm", "1.0"}, {"train.beta1", "0.9"}};
  const std::string text = report_html(data);
  const size_t set = text.find("not at their default"), folded = text.find("<details class=\"defaults\">");
  ASSERT_NE(folded, std::string::npos);
  EXPECT_LT(set, text.find("0.0015"));
  EXPECT_LT(text.find("0.0015"), folded);
  EXPECT_TRUE(contains_report(text.substr(folded), "<summary>2 keys at their defaults</summary>"));
  EXPECT_GT(text.find("train.<wbr>beta1"), folded);
  data.defaults.clear();
  EXPECT_FALSE(contains_report(report_html(data), "<details class=\"defaults\">"));
}

TEST(Report, SaysWhatTwoNumbersThatDifferAreOf) {
  ReportData data = synthetic_run();
  data.expert_note = "layer 0 has no experts";
  StepMetrics& last = data.steps.back();
  last.set(figures::kArenaLivePeak, 477.1 * 0x1p20);
  for (StepMetrics& step : data.steps)
    if (&step != &last) step.erase(figures::kArenaLivePeak);
  data.figures = figures_of(data.steps);
  data.figures.set(figures::kArenaReservedPeak, 477.7 * 0x1p20);
  data.figures.set(figures::kPredictedReserved, 477.7 * 0x1p20);
  data.figures.set(figures::kRecentLoss, 4.0);
  data.figures.set(figures::kHeldOutLoss, 3.54);
  std::string text = report_html(data);
  EXPECT_TRUE(
      contains_report(text, "reserved by the arena, at most 477.1 MiB of it in use; predicted to the byte"));
  EXPECT_TRUE(contains_report(text, "; 0.46 below the last steps&#39; loss: it is of other texts") ||
              contains_report(text, "; 0.46 below the last steps' loss: it is of other texts"));
  EXPECT_TRUE(contains_report(text, "<span class=\"note\">layer 0 has no experts</span>"));
  EXPECT_FALSE(contains_report(text, ">even load"));  // a line that lies on the curve
  data.figures.set(figures::kHeldOutLoss, 4.05);
  EXPECT_FALSE(contains_report(report_html(data), "of other texts"));
}

// What copies came to is told in the same words and numbers on the page, in JSON and in the terminal.
TEST(Report, TellsOfCopiesWhatTheFiguresSay) {
  const ReportData data = synthetic_run();
  const std::string text = report_html(data);
  for (const char* heading :
       {"Rank load ÷ mean as routed", "Rank load ÷ mean with replicas", "Choices of replicas, by their outcome",
        "Bytes of replicas", "Replicas of hot experts, in all steps"})
    EXPECT_TRUE(contains_report(text, heading)) << heading;
  double rows = 0, even = 0;
  for (const StepMetrics& step : data.steps) {
    for (const Figures& layer : step.layers) {
      rows += layer.get(figures::kReplicaRows, 0);
      even += layer.get(figures::kReplicasEven, 0);
    }
  }
  EXPECT_TRUE(contains_report(json_of(data.figures), fmt::format("\"copies\":{{\"rows\":{}", rows)));
  EXPECT_NEAR(data.figures.get(figures::kReplicasEven, 0), even, 1e-9);
  const auto facts = facts_of(data.figures, &figures::kCopies);
  ASSERT_EQ(facts.size(), 5u);
  for (const auto& [name, value] : facts) {
    EXPECT_TRUE(contains_report(text, value)) << name;
    EXPECT_TRUE(contains_report(line_of(data.figures, &figures::kCopies), name + " " + value));
  }
  EXPECT_TRUE(line_of({}, &figures::kCopies).empty());
  ReportData without = data;
  for (StepMetrics& step : without.steps)
    for (Figures& layer : step.layers) layer.erase(figures::kRoutedRows), layer.erase(figures::kComputedRows);
  EXPECT_FALSE(contains_report(report_html(without), "Rank load"));
}

// Every moment of a map is on the page; the last is what it shows before anybody asks.
TEST(Report, HeatMapsHaveTheirMoments) {
  const ReportData data = synthetic_run();
  const std::string text = report_html(data);
  const std::regex moment("\\{\"label\":\"at step ([0-9]+)\"");
  const auto moments =
      std::distance(std::sregex_iterator(text.begin(), text.end(), moment), std::sregex_iterator());
  EXPECT_EQ(moments, 3 * 20);
  EXPECT_TRUE(contains_report(text, "Expert load ÷ mean at step 5000"));
  EXPECT_TRUE(contains_report(text, "\"label\":\"at step 250\""));
}

// The loss of pairs of answers is no loss of tokens: it has no perplexity.
TEST(Report, PairsHaveAMarginAndNoPerplexity) {
  ReportData data = synthetic_run();
  StepMetrics& last = data.steps.back();
  last.set(figures::kHeldOutLoss, 0.61);
  last.set(figures::kHeldOutRewardMargin, 0.1834);
  last.set(figures::kHeldOutRewardAccuracy, 0.725);
  data.figures = figures_of(data.steps);
  const std::string text = report_html(data);
  EXPECT_TRUE(contains_report(text, "reward margin 0.183; accuracy 72.5 %"));
  EXPECT_FALSE(contains_report(text, "perplexity"));
}

TEST(Report, ShowsWhatACapacityDropped) {
  ReportData data = synthetic_run();
  const std::string title = "Choices dropped";
  EXPECT_FALSE(contains_report(report_html(data), title));
  for (const int layers : {3, 9}) {
    for (StepMetrics& step : data.steps) {
      for (int layer = 1; layer <= layers; ++layer)
        step.set(figures::kDroppedShare, fmt::format("{}", layer), 0.01 * layer);
    }
    const std::string text = report_html(data);
    EXPECT_TRUE(contains_report(text, title));
    EXPECT_EQ(contains_report(text, "the layer with most"), layers == 9);
  }
}

TEST(Report, AsksNothingOfTheNetwork) {
  const std::string text = report_html(synthetic_run());
  for (const char* way : {" src=", " href=\"h", " href=\"/", "@import", "url(", "<link", "<iframe", "fetch(",
                          "XMLHttpRequest", "import("}) {
    EXPECT_FALSE(contains_report(text, way)) << way;
  }
  EXPECT_FALSE(std::regex_search(text, std::regex("https?://(?!www\\.w3\\.org/2000/svg)")));
  EXPECT_TRUE(contains_report(text, "default-src 'none'"));
}

TEST(Report, PipelinesAreLanesThatCanBeZoomed) {
  ReportData data;
  PipelineView& view = data.pipeline.emplace_back();
  view.title = "dual_pipe_v, as it ran";
  view.note = "1.2 s";
  view.until_us = 12;
  const uint32_t name = view.timeline.intern("F0"), chunk = view.timeline.intern("chunk 0");
  Span span{name, chunk, view.timeline.track(0, ""), 0, 5, SpanPhase::both};
  span.half = SpanHalf::lower;
  view.timeline.spans.push_back(span);
  const std::string text = report_html(data);
  EXPECT_TRUE(contains_report(text, "<h2>Pipeline"));
  EXPECT_TRUE(contains_report(text, "dual_pipe_v, as it ran"));
  EXPECT_TRUE(contains_report(text, "backward (both)"));
  EXPECT_TRUE(contains_report(text, "\"lanes\":[\"rank 0\"]"));
  EXPECT_TRUE(contains_report(text, "\"length\":12,")) << "the axis goes on to the end of the step";
  EXPECT_TRUE(std::regex_search(text, std::regex("\"spans\":\\[0,0,5,5,[01],[01],-1,-1,-1,2\\]")));
}

// Whoever reads a long page finds its sections, and a section that is not there is not in the list.
TEST(Report, ListsItsSections) {
  const std::string text = report_html(synthetic_run());
  const std::regex link("<a href=\"#([a-z]+)\">");
  int links = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at, ++links)
    EXPECT_TRUE(contains_report(text, "<section id=\"" + (*at)[1].str() + "\">")) << (*at)[1];
  EXPECT_GT(links, 5);
  EXPECT_FALSE(contains_report(text, "href=\"#pipeline\""));
}

TEST(Report, SaysWhereBytesDontFollowFromTypeAndShape) {
  ReportData data;
  data.peak_tensors = {{"w", "bf16", "256 x 256", "weight", 140000, "packed"},
                       {"x", "bf16", "2 x 2", "activation", 8, ""}};
  data.peak_of = "rank 3";
  const std::string text = report_html(data);
  EXPECT_TRUE(contains_report(text, "Tensors at the peak of rank 3"));
  EXPECT_TRUE(contains_report(text, "<td data-label=\"layout\">packed</td>"));
}

TEST(Report, KeysBreakAtDots) {
  ReportData data;
  data.configuration = {{"model.num_hidden_layers", "4"}};
  EXPECT_TRUE(contains_report(report_html(data), "model.<wbr>num_<wbr>hidden_<wbr>layers"));
}

TEST(Report, EmptyDataIsAPageWithoutSections) {
  const std::string text = report_html({});
  EXPECT_TRUE(contains_report(text, "<h1>training run</h1>"));
  for (const char* absent : {"<section", "<h2>", "class=\"cards\"", "class=\"chips\"", "<figure", "<table"}) {
    EXPECT_FALSE(contains_report(text, absent)) << absent;
  }
}

TEST(Report, EachSectionStandsAlone) {
  ReportData only_loss;
  only_loss.steps.resize(3);
  for (int i = 0; i < 3; ++i) {
    only_loss.steps[i].step = i + 1;
    only_loss.steps[i].set(figures::kLoss, 3.0 - i);
  }
  only_loss.figures = figures_of(only_loss.steps);
  const std::string text = report_html(only_loss);
  EXPECT_TRUE(contains_report(text, "<h2>Learning</h2>"));
  EXPECT_TRUE(contains_report(text, "<div class=\"value\">1.0000</div>"));
  for (const char* absent :
       {"<h2>Speed", "<h2>Experts", "<h2>Memory", "<h2>Timeline", "<h2>Setup", "Learning rate"}) {
    EXPECT_FALSE(contains_report(text, absent)) << absent;
  }
  ReportData only_memory;
  only_memory.memory = {synthetic_run().memory[0]};
  EXPECT_TRUE(contains_report(report_html(only_memory), "<h2>Memory</h2>"));
}

TEST(Report, EscapesAllText) {
  const std::string evil = "<img onerror=alert(1)>\"'&";
  ReportData data = synthetic_run();
  data.run_name = data.subtitle = data.memory[0].title = data.timeline_title = evil;
  data.model = data.configuration = data.environment = {{evil, evil}};
  data.cards = {{evil, evil, evil}};
  data.expert_layers = {evil};
  data.memory[0].curve.peak.op = data.memory[0].curve.peak.values[0].name = evil;
  data.peak_tensors = {{evil, evil, evil, evil, 1}};
  data.samples = {{evil, evil, 1}};
  data.timeline.tracks[0].stream = evil;
  data.timeline.spans[0].name = data.timeline.spans[0].kind = data.timeline.intern(evil);
  EXPECT_FALSE(contains_report(report_html(data), "<img"));
}

TEST(Report, DivergenceIsSaid) {
  ReportData data;
  for (int i = 1; i <= 100; ++i) {
    data.steps.emplace_back();
    data.steps.back().step = i;
    data.steps.back().set(figures::kLoss, i < 60 ? 5.0 / i : std::numeric_limits<double>::quiet_NaN());
    data.steps.back().set(figures::kGradientNorm, i < 60 ? 1.0 : std::numeric_limits<double>::infinity());
    data.steps.back().set(figures::kTokensPerSecond, 1e300);
  }
  data.figures = figures_of(data.steps);
  const std::string text = report_html(data);
  EXPECT_TRUE(contains_report(text, "card bad"));
  EXPECT_TRUE(contains_report(text, "diverged by step 100"));
  EXPECT_FALSE(contains_report(text, "NaN")) << "coordinates and JSON have none";
}

TEST(Report, JudgesThePredictedPeak) {
  ReportData data;
  data.figures.set(figures::kPredictedReserved, 1000 * 1048576.0);
  data.figures.set(figures::kArenaReservedPeak, 1000 * 1048576.0);
  EXPECT_TRUE(contains_report(report_html(data), "predicted to the byte"));
  data.figures.set(figures::kArenaReservedPeak, 1200 * 1048576.0);
  EXPECT_TRUE(contains_report(report_html(data), "card bad"));
  EXPECT_TRUE(contains_report(report_html(data), "(+20.0 %)"));
  data.figures.erase(figures::kArenaReservedPeak);
  EXPECT_TRUE(contains_report(report_html(data), "predicted, not measured"));
}

// Every figure is of one set of steps: what is called a median is one of all, what is called the last step's is
// that.
TEST(RunFigures, AreOfAllSteps) {
  std::vector<StepMetrics> steps(100);
  for (int i = 0; i < 100; ++i) {
    StepMetrics& step = steps[static_cast<size_t>(i)];
    step.step = i + 1;
    step.set(figures::kLoss, i < 98 ? 9 : i == 98 ? 1 : 2);
    step.set(figures::kTokensPerSecond, i < 60 ? 100 : 1000);
    step.set(figures::kFlopsPerSecond,
             i == 0 ? std::numeric_limits<double>::quiet_NaN() : step.get(figures::kTokensPerSecond, 0) * 3);
    step.set(figures::kArenaLivePeak, 50);
    if (i > 10) step.set(figures::kArenaReservedPeak, i == 20 ? 90 : 60);
    if (i == 49) step.set(figures::kHeldOutLoss, 5);
  }
  const RunFigures f = figures_of(steps);
  EXPECT_EQ(f.step, 100);
  EXPECT_EQ(f.get(figures::kLoss), 2);
  EXPECT_EQ(recent_steps(steps.size()), 2u);
  EXPECT_EQ(f.get(figures::kRecentLoss), 1.5);
  EXPECT_EQ(f.get(figures::kTokensPerSecond), 100);
  EXPECT_EQ(f.get(figures::kFlopsPerSecond), 300);
  EXPECT_EQ(f.get(figures::kArenaReservedPeak), 90);
  EXPECT_EQ(f.get(figures::kHeldOutLoss), 5);
  EXPECT_EQ(f.get(figures::kHeldOutStep), 50);
  ReportData data;
  data.steps = steps;
  data.figures = f;
  const std::string text = report_html(data);
  EXPECT_TRUE(contains_report(
      text, "<div class=\"value\">2.0000</div><div class=\"remark\">step 100; mean of the last 2: 1.5000"));
  EXPECT_TRUE(contains_report(text, "<div class=\"value\">100 <small>tok/s</small>"));
  EXPECT_TRUE(contains_report(text, "\"reserved_bytes\":90"));
  EXPECT_EQ(figures_of({}).step, 0);
  EXPECT_FALSE(figures_of({}).has(figures::kLoss));
}

TEST(Report, IsWrittenWhole) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("heddle-report-{}.html", ::getpid())).string();
  const ReportData data = synthetic_run();
  write_report(path, data);
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_EQ(out.str(), report_html(data));
  EXPECT_TRUE(out.str().ends_with("</html>\n"));
  std::filesystem::remove(path);
  EXPECT_THROW(write_report("/nowhere/report.html", data), SystemError);
}

}  // namespace
}  // namespace heddle::observe
