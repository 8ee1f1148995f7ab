// The report as a whole: complete, self-contained, escaped, and silent about what it has not.
#include "heddle/observe/report.h"

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

bool contains(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

TEST(Report, ShowsAWholeRun) {
  const std::string text = report_html(synthetic_run());
  for (const char* heading :
       {"Learning", "Speed", "Experts", "Memory", "Timeline", "What it writes", "Setup", "Final loss",
        "Held-out perplexity", "Tokens per second", "Model FLOP/s", "Peak memory", "unigram entropy",
        "Gradient norm", "Learning rate", "Expert load ÷ mean at step 5000", "Tensors at the peak",
        "32 smaller ones", "capacity 8.0 GiB"}) {
    EXPECT_TRUE(contains(text, heading)) << heading;
  }
  EXPECT_LT(text.size(), 2'000'000u);
}

TEST(Report, AsksNothingOfTheNetwork) {
  const std::string text = report_html(synthetic_run());
  for (const char* way :
       {" src=", " href=", "@import", "url(", "<link", "<iframe", "fetch(", "XMLHttpRequest", "import("}) {
    EXPECT_FALSE(contains(text, way)) << way;
  }
  EXPECT_FALSE(std::regex_search(text, std::regex("https?://(?!www\\.w3\\.org/2000/svg)")));
  EXPECT_TRUE(contains(text, "default-src 'none'"));
}

// They come as pictures with a style sheet of their own, which must neither reach the page nor be fetched.
TEST(Report, HoldsThePipelinesPictures) {
  ReportData data;
  data.pipeline = {"<svg xmlns=\"http://www.w3.org/2000/svg\"><style>text { fill: red }</style></svg>", "<svg/>"};
  const std::string text = report_html(data);
  EXPECT_TRUE(contains(text, "<h2>Pipeline"));
  EXPECT_TRUE(contains(text, "src=\"data:image/svg+xml,%3Csvg"));
  EXPECT_TRUE(contains(text, "src=\"data:image/svg+xml,%3Csvg/%3E\""));
  EXPECT_FALSE(contains(text, "{ fill: red"));
}

TEST(Report, EmptyDataIsAPageWithoutSections) {
  const std::string text = report_html({});
  EXPECT_TRUE(contains(text, "<h1>training run</h1>"));
  for (const char* absent : {"<section", "<h2>", "class=\"cards\"", "class=\"chips\"", "<figure", "<table"}) {
    EXPECT_FALSE(contains(text, absent)) << absent;
  }
}

TEST(Report, EachSectionStandsAlone) {
  ReportData only_loss;
  only_loss.steps.resize(3);
  for (int i = 0; i < 3; ++i) {
    only_loss.steps[i].step = i + 1;
    only_loss.steps[i].lm_loss = 3.0 - i;
  }
  const std::string text = report_html(only_loss);
  EXPECT_TRUE(contains(text, "<h2>Learning</h2>"));
  EXPECT_TRUE(contains(text, "from 3.00 at step 1"));
  for (const char* absent :
       {"<h2>Speed", "<h2>Experts", "<h2>Memory", "<h2>Timeline", "<h2>Setup", "Learning rate"}) {
    EXPECT_FALSE(contains(text, absent)) << absent;
  }
  ReportData only_memory;
  only_memory.memory.at_us = {0, 1};
  only_memory.memory.live_bytes = {1024, 2048};
  EXPECT_TRUE(contains(report_html(only_memory), "<h2>Memory</h2>"));
}

TEST(Report, EscapesAllText) {
  const std::string evil = "<img onerror=alert(1)>\"'&";
  ReportData data = synthetic_run();
  data.run_name = data.subtitle = data.memory.title = data.timeline_title = evil;
  data.model = data.configuration = data.environment = {{evil, evil}};
  data.cards = {{evil, evil, evil}};
  data.expert_layers = {evil};
  data.memory.roles[0].role = evil;
  data.peak_tensors = {{evil, evil, evil, evil, 1}};
  data.samples = {{evil, evil, 1}};
  data.timeline.tracks[0].stream = evil;
  data.timeline.spans[0].name = data.timeline.spans[0].kind = data.timeline.intern(evil);
  EXPECT_FALSE(contains(report_html(data), "<img"));
}

TEST(Report, DivergenceIsSaid) {
  ReportData data;
  for (int i = 1; i <= 100; ++i) {
    data.steps.emplace_back();
    data.steps.back().step = i;
    data.steps.back().lm_loss = i < 60 ? 5.0 / i : std::numeric_limits<double>::quiet_NaN();
    data.steps.back().gradient_norm = i < 60 ? 1.0 : std::numeric_limits<double>::infinity();
    data.steps.back().tokens_per_s = 1e300;
  }
  const std::string text = report_html(data);
  EXPECT_TRUE(contains(text, "card bad"));
  EXPECT_TRUE(contains(text, "diverged by step 100"));
  EXPECT_FALSE(contains(text, "NaN")) << "coordinates and JSON have none";
}

TEST(Report, JudgesThePredictedPeak) {
  ReportData data;
  data.predicted_peak_bytes = 1000 * 1048576.0;
  data.measured_peak_bytes = data.predicted_peak_bytes;
  EXPECT_TRUE(contains(report_html(data), "predicted to the byte"));
  data.measured_peak_bytes = 1200 * 1048576.0;
  EXPECT_TRUE(contains(report_html(data), "card bad"));
  EXPECT_TRUE(contains(report_html(data), "(+20.0 %)"));
  data.measured_peak_bytes.reset();
  EXPECT_TRUE(contains(report_html(data), "predicted, not measured"));
}

TEST(Report, FinalLossIsTheMeanOfItsLastFiftieth) {
  ReportData data;
  for (int i = 1; i <= 100; ++i) {
    data.steps.emplace_back();
    data.steps.back().step = i;
    data.steps.back().lm_loss = i <= 98 ? 9 : i == 99 ? 1 : 2;
  }
  EXPECT_TRUE(contains(report_html(data), "<div class=\"value\">1.500</div>"));
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
