// A search has one answer, however many threads seek it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>

#include "heddle/search/search.h"

namespace heddle::search {

/// Expects the query's five best plans on one thread, with all its counts, on each of these numbers of threads too.
inline void expect_same_answer(Query q, std::initializer_list<int> threads) {
  q.threads = 1;
  const Answer one = search(q);
  ASSERT_EQ(one.top.size(), 5u);
  for (const int n : threads) {
    q.threads = n;
    const Answer many = search(q);
    EXPECT_EQ(many.plans, one.plans);
    EXPECT_EQ(many.fitting, one.fitting);
    EXPECT_EQ(many.layouts, one.layouts);
    EXPECT_EQ(many.passed_over, one.passed_over);
    ASSERT_EQ(many.top.size(), one.top.size());
    for (size_t i = 0; i < one.top.size(); ++i) {
      EXPECT_EQ(many.top[i].job, one.top[i].job);
      EXPECT_EQ(many.top[i].exact.step_s, one.top[i].exact.step_s);
    }
  }
}

}  // namespace heddle::search
