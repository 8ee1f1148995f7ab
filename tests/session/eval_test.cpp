// Tasks as they are read, and what bounds a share of right answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "heddle/session/eval/score.h"
#include "heddle/session/eval/task.h"

namespace heddle::session {
namespace {

TEST(Task, AChoiceIsAsLongAsTheHarnessCountsIt) {
  const Task task = parse_task(
      "{\"query\": \"The terms of\", \"choices\": [\"a\", \"programs\", \"Zürich 织布\", \" own\"], \"gold\": 1}\n"
      "{\"arguments\": [[\"The\", \" terms\"], [\"The\", \"terms\"]], \"target\": 0}\n",
      "task");
  std::vector<size_t> lengths;
  for (const TaskItem& item : task.items) {
    for (const TaskItem::Choice& choice : item.choices) lengths.push_back(choice.characters);
  }
  EXPECT_EQ(lengths, (std::vector<size_t>{1, 8, 9, 4, 5, 5}));
  EXPECT_EQ(task.items[0].choices[0].continuation, " a");
}

TEST(Task, ArgumentsKeepTheirOrder) {
  std::string line = R"({"target": 10, "acc": NaN, "arguments": {)";
  for (int i = 0; i < 12; ++i)
    line += (i > 0 ? ", " : "") + fmt::format(R"("gen_args_{}": {{"arg_0": "Q", "arg_1": " {}"}})", i, i);
  const Task task = parse_task(line + "}}", "task");
  ASSERT_EQ(task.items[0].choices.size(), 12U);
  EXPECT_EQ(task.items[0].choices[10].continuation, " 10");
  EXPECT_EQ(task.items[0].gold, 10U);
}

TEST(Share, IsBoundedWithinTheWhole) {
  const Estimate none = share(0, 8), all = share(8, 8), half = share(4, 8);
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.3244, 1e-4);  // Wilson's, of 0 in 8
  EXPECT_EQ(all.mean, 1);
  EXPECT_NEAR(all.low, 0.6756, 1e-4);
  EXPECT_LE(all.high, 1);
  EXPECT_NEAR(half.low, 0.2152, 1e-4);
  EXPECT_NEAR(half.high, 0.7848, 1e-4);
  EXPECT_NEAR(half.error, 0.18898, 1e-4);
  for (int64_t count = 0; count <= 30; ++count) {
    const Estimate e = share(count, 30);
    EXPECT_TRUE(e.low >= 0 && e.low <= e.mean && e.mean <= e.high && e.high <= 1) << count;
  }
}

}  // namespace
}  // namespace heddle::session
