#include "heddle/base/error.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

std::string what_of(void (*raise)()) {
  try {
    raise();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(InternalError, NamesItsLine) {
  const std::string checked = what_of([] { HEDDLE_CHECK(1 + 1 == 3, "sums to {}", 2); });
  EXPECT_TRUE(checked.starts_with("sums to 2 [1 + 1 == 3] (")) << checked;
  EXPECT_TRUE(checked.ends_with(fmt::format("base/error_test.cpp:{})", __LINE__ - 2))) << checked;
  const std::string plain = what_of([] { internal_error("{} is odd", "this"); });
  EXPECT_TRUE(plain.starts_with("this is odd (")) << plain;
  EXPECT_TRUE(plain.ends_with(fmt::format("error_test.cpp:{})", __LINE__ - 2))) << plain;
}

}  // namespace
}  // namespace heddle
