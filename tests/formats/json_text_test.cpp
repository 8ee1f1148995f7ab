// Broken JSON is refused by one line with the place, what was found and what is expected.
#include "heddle/formats/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"

namespace heddle::formats {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "f", 3);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonText, EveryKindOfErrorIsTold) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "f:1:1: not JSON: found the end of the text, a value is expected"},
      {"{", "f:1:2: not JSON: found the end of the text, a key in double quotes is expected"},
      {"{\"a\": tru}", "f:1:10: not JSON: found 'tru', a value is expected"},
      {"{\n\"a\" 1}", "f:2:5: not JSON: found '1', ':' is expected between a key and its value"},
      {"[1 2]", "f:1:4: not JSON: found '2', ',' or ']' is expected"},
      {"{\"a\":1 2}", "f:1:8: not JSON: found '2', ',' or '}' is expected"},
      {"{} x", "f:1:4: not JSON: found 'x', nothing may follow the value"},
      {"[1e999]", "f: not JSON that can be held: a number is too large"},
      {"[[[[1]]]]", "f: nested deeper than 3"},
      {"root:$6$salt$hash:19000:0:99999:7:::\n", "f: not JSON: it begins with neither '{' nor '['"},
      {" \x1b[31m", "f: not JSON: it begins with neither '{' nor '['"},
      {"{\x1b[31m", "f:1:2: not JSON: found '\\x1b', a key in double quotes is expected"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(refusal(text), expected) << text;
  EXPECT_NE(refusal("[\"\xff\"]").find("found '\\xff', a string must be UTF-8"), std::string::npos);
  EXPECT_NE(refusal("[\"\n\"]").find("a string must be UTF-8 with \\ escapes"), std::string::npos);
  EXPECT_EQ(refusal("{\"a\": [1, null]}"), "accepted");
}

TEST(JsonText, ValuesAreShownOnOneLine) {
  EXPECT_EQ(shown(nlohmann::json("a\n\x1b")), R"("a\n\u001b")");
  EXPECT_EQ(shown(nlohmann::json(std::string(200, 'a'))), "\"" + std::string(99, 'a') + "…");
}

}  // namespace
}  // namespace heddle::formats
