// What may not reach a terminal is spelt out, what may is left alone.
#include "heddle/base/escaped.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Escaped, ControlsAreSpeltOut) {
  EXPECT_EQ(escaped("plain é 中 words"), "plain é 中 words");
  EXPECT_EQ(escaped("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
  EXPECT_EQ(escaped("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(escaped(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(escaped("\xc2\x9b"
                    "31m"),
            "\\u009b31m");  // one letter that many terminals take for ESC [
  EXPECT_EQ(escaped("\xe2\x80\xae"
                    "x"),
            "\\u202ex");
  EXPECT_EQ(escaped("\x9b\xff\xc3"), "\\x9b\\xff\\xc3");  // no UTF-8
  EXPECT_EQ(escaped(escaped("\x1b\n")), escaped("\x1b\n"));
}

TEST(Escaped, LongTextsAreCutBetweenLetters) {
  EXPECT_EQ(escaped("abc", 3), "abc");
  EXPECT_EQ(escaped("abcd", 3), "abc…");
  EXPECT_EQ(escaped("abé", 3), "ab…");
  EXPECT_EQ(escaped("", 0), "");
}

TEST(Escaped, LinesStayWhereTheyAreMeant) {
  EXPECT_EQ(escaped_lines("one\n\x1b two\n"), "one\n\\x1b two\n");
  EXPECT_EQ(escaped_lines(""), "");
}

}  // namespace
}  // namespace heddle
