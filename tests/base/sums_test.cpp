// Checksums, hashes and statistics against values known from elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/hash.h"
#include "heddle/base/statistics.h"

namespace heddle {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownSums) {
  const std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62a8ab43u);
  EXPECT_EQ(crc32c("", 0), 0u);
  for (size_t cut = 0; cut <= 9; ++cut)
    EXPECT_EQ(crc32c(&"123456789"[cut], 9 - cut, crc32c("123456789", cut)), 0xe3069283u);
}

// Of every length around the runs that are summed beside each other, from and to any address.
TEST(Crc32c, OfACopyIsThatOfTheBytes) {
  std::vector<uint8_t> from(40000), to(40016);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(mix_bits(i));
  for (const size_t size : {0, 1, 7, 8, 4095, 12287, 12288, 12289, 24576, 39990}) {
    for (const size_t offset : {0, 1, 3, 8}) {
      std::fill(to.begin(), to.end(), uint8_t{0x5a});
      const uint32_t sum = crc32c_copy(to.data() + offset, from.data() + offset, size, 7);
      EXPECT_EQ(sum, crc32c(from.data() + offset, size, 7)) << size << " at " << offset;
      EXPECT_EQ(std::memcmp(to.data() + offset, from.data() + offset, size), 0) << size << " at " << offset;
      EXPECT_EQ(to[offset + size], 0x5a) << size << " at " << offset;
    }
  }
}

TEST(Hash, KnownValues) {
  // Fowler, Noll and Vo's own list; the first numbers of SplitMix64 from seed 0.
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), 0x85944171f73967e8u);
  EXPECT_EQ(mix_bits(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix_bits(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

// What folders of prepared text and checkpoints hold must be found again by what comes after.
TEST(Hash, OfBytesStays) {
  EXPECT_EQ(hash_bytes(""), mix_bits(0));
  EXPECT_EQ(hash_bytes("0123456789abcdef"), 0x10cff672ccd3a7fau);
  EXPECT_EQ(hash_bytes("0123456789", 7), 0x7147bea558e58d41u);
}

TEST(Statistics, MedianAndQuantile) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 1), 4);
}

}  // namespace
}  // namespace heddle
