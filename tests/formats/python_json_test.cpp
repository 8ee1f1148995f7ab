// JSON as Python writes it: what is taken, what is refused and where, and ends of values found piece by piece.
#include "heddle/formats/python_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/random.h"

namespace heddle::formats {
namespace {

using Json = nlohmann::ordered_json;

std::string refusal_python_json(std::string_view text, const PythonJsonLimits& limits = {}) {
  try {
    parse_python_json(text, limits);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "";
}

TEST(PythonJson, IsTheSameAsAnyOther) {
  for (const char* text :
       {"{}", "[]",
        " { \"a\" : [ 1 , -2.5e3 , true , false , null ] , \"b\" : { \"c\" : \"\\n\\u00e9\\\\\\\"/\" } } ", "\"x\"",
        "0", "-0", "1e5", "9223372036854775807", "18446744073709551615", "[[[]]]"}) {
    EXPECT_EQ(parse_python_json(text), Json::parse(text)) << text;
  }
}

TEST(PythonJson, TakesWhatOnlyPythonWrites) {
  EXPECT_TRUE(std::isnan(parse_python_json("NaN").get<double>()));
  EXPECT_EQ(parse_python_json("[Infinity, -Infinity]")[1].get<double>(), -INFINITY);
  EXPECT_EQ(parse_python_json("123456789012345678901234567890").get<double>(), 123456789012345678901234567890.0);
  EXPECT_TRUE(std::isinf(parse_python_json("1" + std::string(400, '0')).get<double>()));
  EXPECT_EQ(parse_python_json("\"\\ud83d\\ude42 \\ud800 \\ude42 \\ud800\\ud83d\\ude42\""),
            Json("\xf0\x9f\x99\x82 \xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd\xf0\x9f\x99\x82"));
  // The last value of a key counts, at the place of the first.
  EXPECT_EQ(parse_python_json("{\"a\": 1, \"b\": 2, \"a\": 3}").dump(), "{\"a\":3,\"b\":2}");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += fmt::format("\"k{}\": {}, ", i % 50, i);
  const Json read = parse_python_json(many + "\"k7\": -1}");
  EXPECT_EQ(read.size(), 50u);
  EXPECT_EQ(read["k7"], -1);
  EXPECT_EQ(read["k49"], 99);
  EXPECT_EQ(parse_python_json("\"\xff\"", {.any_bytes = true}).get<std::string>(), "\xff");
}

TEST(PythonJson, RefusesByTheByte) {
  const std::pair<const char*, const char*> kBroken[] = {{"", "it ends too early, at byte 1"},
                                                         {"{\"a\": 1", "it ends too early, at byte 8"},
                                                         {"{\"a\" 1}", "where ':' is expected"},
                                                         {"{a: 1}", "where a key is expected, at byte 2"},
                                                         {"[1 2]", "where ',' or ']' is expected"},
                                                         {"{\"a\": 1,}", "where a key is expected"},
                                                         {"[1,]", "'' is no value"},
                                                         {"nan", "'nan' is no value"},
                                                         {"01", "'01' is no value"},
                                                         {"1.", "'1.' is no value"},
                                                         {"\"a", "a string has no end"},
                                                         {"\"\\x\"", "begins no escape"},
                                                         {"\"\\u12\"", "fewer than four digits"},
                                                         {"\"\t\"", "the control character '\\t'"},
                                                         {"\"\xff\"", "the byte '\\xff' is no UTF-8, at byte 2"},
                                                         {"1 1", "'1' follows the value"},
                                                         {"-", "'-' is no value"},
                                                         {"+Infinity", "is no value"}};
  for (const auto& [text, part] : kBroken)
    EXPECT_NE(refusal_python_json(text).find(part), std::string::npos) << text << ": " << refusal_python_json(text);
  EXPECT_NE(refusal_python_json(std::string(100000, '[')).find("nested more than 64 deep"), std::string::npos);
}

TEST(PythonJson, HostileObjectsEnd) {
  std::string many = "{";
  for (int i = 0; i < 300000; ++i) many += fmt::format("\"{}\": 1, ", i);
  EXPECT_EQ(parse_python_json(many + "\"x\": 1}").size(), 300001u);
}

TEST(PythonJson, EndsOfValuesAreFoundPieceByPiece) {
  const std::string text = "{\"a\": [\"}\\\"]\", {}], \"b\": 1} ,\"s\\\\\" 12.5,true]";
  const std::string_view values[] = {"{\"a\": [\"}\\\"]\", {}], \"b\": 1}", "\"s\\\\\"", "12.5", "true"};
  const RandomKey draws = RandomKey(5).with("pieces");
  uint64_t drawn = 0;
  for (int round = 0; round < 50; ++round) {
    size_t at = 0;
    for (const std::string_view value : values) {
      at = text.find_first_not_of(" ,", at);
      JsonValueEnd end;
      size_t found = std::string_view::npos;
      for (size_t held = 0; found == std::string_view::npos;) {
        held = std::min(text.size() - at, held + 1 + draws.bits(drawn++) % 7);
        found = end.find(std::string_view(text).substr(at, held), held == text.size() - at);
      }
      EXPECT_EQ(std::string_view(text).substr(at, found), value);
      at += found;
    }
  }
}

}  // namespace
}  // namespace heddle::formats
