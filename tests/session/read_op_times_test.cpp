// Times of ops that lie in a file: whoever wrote it.
#include "heddle/session/slow/read_op_times.h"

#include <gtest/gtest.h>

#include <string>

#include "heddle/base/error.h"

namespace heddle::session {
namespace {

std::string table_with(const std::string& op) { return R"({"steps":[3,7],"ranks":2,"ops":[)" + op + "]}"; }

std::string op_with(const std::string& slowest, const std::string& seconds = "[0.5,null]") {
  return R"({"op":"linear","phase":"F","stream":"compute","layer":1,"calls":2,"over_others":null,"slowest_rank":)" +
         slowest + R"(,"seconds":)" + seconds + "}";
}

TEST(ReadOpTimes, WhatARunWrites) {
  const OpTimesTable table = read_op_times(table_with(op_with("0")), "f");
  EXPECT_EQ(table.first_step, 3);
  EXPECT_EQ(table.last_step, 7);
  EXPECT_EQ(table.ranks, 2);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].op, "linear");
  EXPECT_EQ(table.rows[0].slowest_s, 0.5);
  EXPECT_FALSE(table.rows[0].over_others);
  EXPECT_TRUE(read_op_times(table_with(""), "f").rows.empty());
}

TEST(ReadOpTimes, AllElseIsRefusedInALineThatNamesTheFile) {
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string(""), std::string("3"), std::string("{\"steps\":"),
        std::string(R"({"steps":[1],"ranks":1,"ops":[]})"), std::string(R"({"steps":[1,2],"ranks":-1,"ops":[]})"),
        std::string(R"({"steps":[1,2],"ranks":1,"ops":{}})"),
        std::string(R"({"steps":[1,1e99],"ranks":1,"ops":[]})"), table_with("3"), table_with("{}"),
        table_with(op_with("99999999")), table_with(op_with("2")), table_with(op_with("-1")),
        table_with(op_with("1")), table_with(op_with("0", "[]")), table_with(op_with("0", "3")),
        table_with(op_with("\"0\"")), std::string(100000, '[')}) {
    try {
      read_op_times(text, "run/op_times.json");
      ADD_FAILURE() << "accepted " << text.substr(0, 60);
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      EXPECT_EQ(said.find("run/op_times.json:"), 0u) << said;
      EXPECT_EQ(said.find('\n'), said.npos) << said;
      EXPECT_LT(said.size(), 300u);
    }
  }
}

}  // namespace
}  // namespace heddle::session
