// Memory over a step as words, letters, JSON and a page.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/observe/memory/memory_json.h"
#include "heddle/observe/memory/memory_page.h"
#include "heddle/observe/memory/memory_text.h"
#include "heddle/observe/memory/memory_words.h"
#include "tests/observe/synthetic_run.h"

namespace heddle::observe {
namespace {

using simulate::MemoryCurve;
using simulate::MemoryKind;

constexpr int64_t kMiB = 1 << 20;

simulate::BytesOfKinds held(int64_t weights, int64_t activations, int64_t back) {
  simulate::BytesOfKinds kinds{};
  kinds[static_cast<size_t>(MemoryKind::weights)] = weights * kMiB;
  kinds[static_cast<size_t>(MemoryKind::feed_forward)] = activations * kMiB;
  kinds[static_cast<size_t>(MemoryKind::in_flight)] = back * kMiB;
  return kinds;
}

// Half weights; the second half of the step holds as much of activations.
MemoryCurve two_halves() {
  MemoryCurve curve;
  curve.until_us = 1000;
  curve.at_us = {0, 500};
  curve.bytes = {held(4, 0, 0), held(4, 3, 1)};
  curve.persistent_bytes = 4 * kMiB;
  curve.peak = {500, 8 * kMiB, curve.bytes[1], "linear_dgrad", ir::Phase::I, 7, 3, {{2, kMiB}, {3, 2 * kMiB}}, {}};
  curve.peak.values = {{"7.u", ir::Role::activation, 0, 3, 2 * kMiB}};
  return curve;
}

TEST(Memory, PeakIsExplained) {
  MemoryCurve curve = two_halves();
  EXPECT_EQ(
      peak_words(curve),
      "It holds most, 8.0 MiB, at 50 % of the step: as linear_dgrad begins, in the input gradients of "
      "microbatch 3, layer 7. 4.0 MiB persist and 1.0 MiB are on the way from and to the host; microbatches 2 (1.0 "
      "MiB) and 3 (2.0 MiB) are in flight with activations. The largest transient values: 7.u (2.0 "
      "MiB, microbatch 3).");
  curve.peak.microbatches.clear();
  for (int m = 0; m < 9; ++m) curve.peak.microbatches.push_back({m, m * kMiB});
  EXPECT_NE(
      peak_words(curve).find("9 microbatches, from 0 to 8, are in flight with 36.0 MiB of activations, at most "
                             "8.0 MiB each"),
      std::string::npos);
  curve.peak.bytes = curve.persistent_bytes;
  EXPECT_EQ(peak_words(curve), "It holds 4.0 MiB throughout the step: persistent values.");
}

TEST(Memory, LettersStandWhereTheirBytesAre) {
  Terminal terminal;
  const std::string text = memory_text(two_halves(), 60, terminal);
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    lines.push_back(text.substr(from, end - from));
    EXPECT_LE(lines.back().size(), 60u) << lines.back();
    from = end + 1;
  }
  // The picture: a marker over nine rows, as wide as 60 columns leave.
  const std::string& top = lines[2];
  const std::string& bottom = lines[10];
  ASSERT_TRUE(top.starts_with("8.0 MiB |"));
  EXPECT_EQ(lines[1].find('v'), top.find('h'));
  EXPECT_EQ(top.find('h'), (60 + 9) / 2u);  // the second half
  EXPECT_EQ(std::count(bottom.begin(), bottom.end(), 'W'), 51);
  int64_t letters = 0;
  for (size_t row = 2; row < 11; ++row) letters += std::count(lines[row].begin(), lines[row].end(), 'f');
  EXPECT_EQ(letters, 4 * std::count(top.begin(), top.end(), 'h')) << text;
  EXPECT_EQ(memory_text(MemoryCurve(), 60, terminal), "");
  terminal.colour = true;
  EXPECT_NE(memory_text(two_halves(), 60, terminal).find("\x1b[48;5;"), std::string::npos);
}

TEST(Memory, JsonReadsBack) {
  for (const MemoryCurve& curve : {two_halves(), synthetic_run().memory[0].curve}) {
    const MemoryCurve back = memory_curve_of(nlohmann::ordered_json::parse(json_of(curve).dump()));
    EXPECT_EQ(back.bytes, curve.bytes);
    EXPECT_EQ(back.peak.of_kinds, curve.peak.of_kinds);
    EXPECT_EQ(back.peak.phase, curve.peak.phase);
    EXPECT_EQ(peak_words(back), peak_words(curve));
  }
  EXPECT_EQ(json_of(two_halves())["bytes"]["weights"], (std::vector<int64_t>{4 * kMiB, 4 * kMiB}));
}

TEST(Memory, PageMarksThePeakAndEscapes) {
  MemoryPage page;
  page.title = "<img>";
  page.views = {{"<img>", "time", two_halves(), {{"room", 9.0 * kMiB}}}};
  page.views[0].curve.peak.values[0].name = "<img>";
  const std::string html = memory_page(page);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  for (const char* wanted :
       {">peak 8.0 MiB<", "class=\"explained\"", "activations of MLPs and experts", "room 9.0 MiB"})
    EXPECT_NE(html.find(wanted), std::string::npos) << wanted;
}

}  // namespace
}  // namespace heddle::observe
