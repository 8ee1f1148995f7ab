// Random layouts on thread ranks. HEDDLE_PARITY_DRAWS asks for more than the usual number.
#include "tests/parity/parity.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::parity {
namespace {

uint64_t draws() {
  const char* asked = std::getenv("HEDDLE_PARITY_DRAWS");
  return asked == nullptr ? 24 : std::strtoull(asked, nullptr, 10);
}

TEST(Parity, RandomLayoutsEqualOneRank) {
  uint64_t flipped = 0;
  for (uint64_t number = 0; number < draws(); ++number) {
    const Draw d = draw(number, 16);
    for (const std::string& difference : differences_on_threads(d)) {
      if (difference == kFlipped) {
        ++flipped;
      } else {
        ADD_FAILURE() << difference;
      }
    }
  }
  EXPECT_LE(flipped * 20, draws()) << "draws in fp32 that could not be compared";
}

TEST(Parity, AWrongFactorIsFound) {
  EXPECT_TRUE(differences_on_threads(draw(3, 8)).empty());
  EXPECT_FALSE(differences_on_threads(draw(3, 8), 1 + 1e-8).empty());
}

}  // namespace
}  // namespace heddle::parity
