#include "heddle/job/hosts/hosts.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/job/hosts/host_pool.h"

namespace heddle::job {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_hosts(text, "hosts");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Hosts, AreReadLineByLine) {
  const std::vector<Host> hosts =
      parse_hosts("# rack 1\na slots=8\n\n  b-2.x\t slots=4 # half of it\nc\n", "hosts");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[1].name, "b-2.x");
  EXPECT_EQ(hosts[1].slots, 4);
  EXPECT_EQ(hosts[2].slots, 1);
  EXPECT_EQ(slots_of(hosts), 13);
}

TEST(Hosts, AreRefusedWithTheLine) {
  EXPECT_EQ(refusal("a\nb slots=0\n"), "hosts:2: 'slots=0', expected slots=N with N from 1 to 1024");
  EXPECT_EQ(refusal("a\na\n"), "hosts:2: a is here twice");
  EXPECT_EQ(refusal("-o"), "hosts:1: '-o' is no name of a host");
  EXPECT_EQ(refusal("a;reboot"), "hosts:1: 'a;reboot' is no name of a host");
  EXPECT_EQ(refusal("# none\n"), "hosts: no host in it; a line a host, as `node1 slots=8`");
}

TEST(Hosts, OfSlurmAreUnfolded) {
  EXPECT_EQ(expanded_nodes("a[1-3,07],b,c-[09-10]"),
            (std::vector<std::string>{"a1", "a2", "a3", "a07", "b", "c-09", "c-10"}));
  EXPECT_EQ(expanded_counts("4(x2),3"), (std::vector<int>{4, 4, 3}));
  for (const char* wrong : {"a[1-3", "a[3-1]", "a[1-999999999]", "a[x]", "a[1]b", "a b", "[1-2]$"})
    EXPECT_THROW(expanded_nodes(wrong), ConfigError) << wrong;
  for (const char* wrong : {"0", "4(x0)", "x", "4(x2", "4(x999999999)"})
    EXPECT_THROW(expanded_counts(wrong), ConfigError) << wrong;
}

TEST(HostPool, TakesTheFirstThatAreUp) {
  HostPool pool({{"a", 2}, {"b", 2}, {"spare", 2}});
  EXPECT_EQ(names_of(pool.with_slots(4)), (std::vector<std::string>{"a", "b"}));
  pool.lost("a", 0);
  EXPECT_EQ(names_of(pool.with_slots(4)), (std::vector<std::string>{"b", "spare"}));
  EXPECT_EQ(pool.with_slots(3)[1].slots, 1);
  pool.lost("spare", 0);
  EXPECT_EQ(slots_of(pool.with_slots(4)), 2);
  EXPECT_EQ(names_of(pool.out()), (std::vector<std::string>{"a", "spare"}));
}

TEST(HostPool, TakesAHostBackLaterEachTimeItIsLost) {
  HostPool pool({{"a", 1}}, 30);
  pool.lost("a", 100);
  EXPECT_TRUE(pool.answers("a", 100.5));
  pool.lost("a", 200);
  EXPECT_FALSE(pool.answers("a", 229));
  EXPECT_TRUE(pool.answers("a", 231));
  pool.lost("a", 300);
  EXPECT_FALSE(pool.answers("a", 359));
  EXPECT_TRUE(pool.answers("a", 361));
}

TEST(HostPool, OneThatAnswersAllTheTimeWaitsFromTheFirst) {
  HostPool pool({{"a", 1}, {"b", 1}}, 30);
  pool.lost("a", 0, true);
  EXPECT_FALSE(pool.answers("a", 29));
  EXPECT_TRUE(pool.answers("a", 30));
  pool.lost("b", 0);
  EXPECT_TRUE(pool.answers("b", 0));
}

}  // namespace
}  // namespace heddle::job
