#include "heddle/job/hosts/probe.h"

#include <gtest/gtest.h>

#include <mutex>

#include "heddle/comm/threads/thread_world.h"

namespace heddle::job {
namespace {

std::vector<HostProbe> alike(size_t hosts) {
  std::vector<HostProbe> probes(hosts, {"h", 42, 0.01, std::vector<double>(hosts, 0.05)});
  for (size_t p = 0; p < hosts; ++p) probes[p].transfer_s[p] = 0;
  return probes;
}

TEST(Probe, TriesEveryPairOnce) {
  for (const int ranks : {2, 3, 4, 5}) {
    std::mutex mutex;
    std::vector<HostProbe> probes;
    comm::run_on_threads(ranks, [&](comm::World& world) {
      std::vector<HostProbe> own = probe_hosts(world);
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) probes = std::move(own);
    });
    ASSERT_EQ(std::ssize(probes), ranks);
    for (int a = 0; a < ranks; ++a) {
      EXPECT_EQ(probes[static_cast<size_t>(a)].digest, probes[0].digest);
      for (int b = 0; b < ranks; ++b)
        EXPECT_EQ(probes[static_cast<size_t>(a)].transfer_s[static_cast<size_t>(b)] > 0, a != b) << a << " " << b;
    }
    EXPECT_TRUE(parse_probe(probe_json(probes, {}), probes.size()).empty());
  }
}

TEST(Probe, BlamesOtherBitsWhereMostAgree) {
  std::vector<HostProbe> probes = alike(4);
  EXPECT_TRUE(bad_hosts(probes).empty());
  probes[2].digest = 7;
  ASSERT_EQ(bad_hosts(probes).size(), 1u);
  EXPECT_EQ(bad_hosts(probes)[0].place, 2u);
  std::vector<HostProbe> two = alike(2);
  two[1].digest = 7;  // nobody knows which of two is right
  EXPECT_TRUE(bad_hosts(two).empty());
}

TEST(Probe, BlamesTheEndThatSlowTransfersShare) {
  std::vector<HostProbe> probes = alike(4);
  for (size_t p = 0; p < 4; ++p) {
    if (p != 3) probes[p].transfer_s[3] = probes[3].transfer_s[p] = 0.5;
  }
  ASSERT_EQ(bad_hosts(probes).size(), 1u);
  EXPECT_EQ(bad_hosts(probes)[0].place, 3u);
  probes = alike(4);
  probes[0].transfer_s[1] = probes[1].transfer_s[0] = 0.5;  // one pair: either may be to blame
  EXPECT_TRUE(bad_hosts(probes).empty());
  probes[1].product_s = 0.05;
  ASSERT_EQ(bad_hosts(probes).size(), 1u);
  EXPECT_EQ(bad_hosts(probes)[0].place, 1u);
}

TEST(Probe, OfOtherTextsNobodyIsBlamed) {
  const std::vector<BadHost> bad =
      parse_probe(R"({"bad": [{"place": 1, "why": "a\u001bb"}, {"place": 9}, 3, {"place": -1}]})", 4);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].why, "a\\x1bb");
  for (const char* text : {"", "[", "[]", "{}", R"({"bad": 3})", R"({"bad": [{"place": "x"}]})"})
    EXPECT_TRUE(parse_probe(text, 4).empty()) << text;
}

TEST(Probe, KnowsWhomAFailedOneHasNotHeardOf) {
  const std::string said =
      "something of mpirun's\nheddle: rank 1 (b) is dead, stopped or cut off: it has not answered rank 2 (c) for "
      "10 s\n";
  const auto silent = silent_host(said, 4);
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->place, 1u);
  EXPECT_FALSE(silent_host(said, 1));
  EXPECT_FALSE(silent_host("heddle: rank 1 (b) has failed\n", 4));
  EXPECT_FALSE(silent_host("heddle: rank x is dead, stopped or cut off", 4));
  EXPECT_FALSE(silent_host("", 4));
}

}  // namespace
}  // namespace heddle::job
