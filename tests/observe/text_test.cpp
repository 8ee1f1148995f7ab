// Human units, terminal widths and tables.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "heddle/base/error.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::observe {
namespace {

constexpr double kNanText = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfText = std::numeric_limits<double>::infinity();

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1288490189), "1.2 GiB");
  EXPECT_EQ(bytes_text(-1536), "-1.5 KiB");
  EXPECT_EQ(bytes_text(1024 * 1024 - 1), "1.0 MiB") << "not 1024.0 KiB";
  EXPECT_EQ(bytes_text(kNanText), "nan");
  EXPECT_EQ(bytes_text(-kInfText), "-inf");
}

TEST(Units, Counts) {
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(3.4e6), "3.4 M");
  EXPECT_EQ(count_text(999.97e6), "1.0 G");
  EXPECT_EQ(count_text(0.25), "0.2");
  EXPECT_EQ(count_text(2.1e12, "FLOP/s"), "2.1 TFLOP/s");
  EXPECT_EQ(count_text(12, "tok/s"), "12 tok/s");
  EXPECT_EQ(count_text(1e30), "1000000000000.0 E");
}

TEST(Units, Durations) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(250e-6), "250.0 us");
  EXPECT_EQ(duration_text(999.96e-6), "1.0 ms");
  EXPECT_EQ(duration_text(1.25), "1.2 s");
  EXPECT_EQ(duration_text(59.97), "1:00");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600 + 5 * 60), "3d 04:05");
  EXPECT_EQ(duration_text(-2), "-2.0 s");
  EXPECT_EQ(duration_text(kInfText), "inf");
}

TEST(Units, Numbers) {
  EXPECT_EQ(number_text(3.21401), "3.214");
  EXPECT_EQ(number_text(2), "2");
  EXPECT_EQ(number_text(0.00022), "2.2e-04");
  EXPECT_EQ(number_text(9.99996), "10");
  EXPECT_EQ(number_text(123456), "123456");
  EXPECT_EQ(number_text(-1e300), "-1e+300");
  EXPECT_EQ(grouped_text(1234567), "1,234,567");
  EXPECT_EQ(grouped_text(-999), "-999");
  EXPECT_EQ(grouped_text(std::numeric_limits<long long>::min()), "-9,223,372,036,854,775,808");
}

TEST(Width, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width("e\u0301"), 1) << "a combining accent";
  EXPECT_EQ(display_width("漢字"), 4);
  EXPECT_EQ(display_width("🙂"), 2);
  EXPECT_EQ(display_width("█▏"), 2);
  EXPECT_EQ(display_width("\xff\xc3"), 2) << "bytes that are no UTF-8";
  EXPECT_EQ(cut_to_width("abcdef", 4), "abc…");
  EXPECT_EQ(cut_to_width("漢字漢字", 4), "漢…") << "half of a wide letter can't be shown";
  EXPECT_EQ(cut_to_width("abc", 3), "abc");
  EXPECT_EQ(cut_to_width("abc", 0), "");
}

RC_GTEST_PROP(Width, CutNeverExceeds, (const std::string& text)) {
  const int columns = *rc::gen::inRange(1, 20);
  RC_ASSERT(display_width(cut_to_width(text, columns)) <= columns);
}

TEST(TableText, AlignsAndRules) {
  Table table({{"layer", Align::left}, {"bytes", Align::right}, {"kind", Align::left}});
  table.row({"moe.3", "1.2 GiB", "weight"});
  table.row({"café", "12 B", "漢"});
  table.rule();
  table.row({"", "1.2 GiB", ""});
  EXPECT_EQ(table.text(),
            "layer    bytes  kind\n"
            "─────  ───────  ──────\n"
            "moe.3  1.2 GiB  weight\n"
            "café      12 B  漢\n"
            "─────  ───────  ──────\n"
            "       1.2 GiB\n");
  EXPECT_EQ(table.text(false).find("─"), std::string::npos);
}

TEST(TableText, NoCellBreaksTheLine) {
  Table table({{"a", Align::left}, {"b", Align::left}});
  table.row({"x\ny\x1b[31m", "z"});
  EXPECT_EQ(table.text(false), "a       b\n------  -\nxy[31m  z\n");
  EXPECT_THROW(table.row({"only one"}), InternalError);
  EXPECT_THROW(Table({}), InternalError);
}

TEST(Wrapped, BreaksAtBlanksAndLosesNothing) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped("", 5), Lines{""});
  EXPECT_EQ(wrapped("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped("one  two", 3), (Lines{"one", "two"}));
  EXPECT_EQ(wrapped("abcdefgh ij", 3), (Lines{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrapped("漢字漢字", 5), (Lines{"漢字", "漢字"}));
  EXPECT_EQ(wrapped("a\n  b", 5), (Lines{"a", "  b"})) << "a line's own indent stays";
}

TEST(Table, NarrowsTextToTheTerminalAndNeverNumbers) {
  Table table({{"name"}, {"count", Align::right}, {"meaning"}});
  table.row({"a", "1,234,567,890", "what it is for, at some length, so that it has to be folded"});
  table.row({"b", "7", "short"});
  EXPECT_EQ(table.text(false, 40),
            "name          count  meaning\n"
            "----  -------------  -------------------\n"
            "a     1,234,567,890  what it is for, at\n"
            "                     some length, so\n"
            "                     that it has to be\n"
            "                     folded\n"
            "b                 7  short\n");
  EXPECT_EQ(table.text(false, 1000), table.text(false));
  EXPECT_NE(table.text(false, 10).find("1,234,567,890"), std::string::npos);
}

}  // namespace
}  // namespace heddle::observe
