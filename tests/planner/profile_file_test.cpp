#include "heddle/planner/profile_file.h"

#include <gtest/gtest.h>

#include "heddle/base/random.h"

namespace heddle::planner {
namespace {

cost::MachineProfile example() {
  cost::MachineProfile p;
  p.machine = "a \"machine\"";
  p.date = "2026-01-01T00:00:00Z";
  p.cores = 2;
  p.bf16_flops_per_s = 2e12;
  p.copy_bytes_per_s = 4e10;
  p.launch_us = 0.2;
  p.together = {1, 0.9};
  p.links = {{cost::Link::threads, 2, 64, 10}, {cost::Link::nodes, 4, 1e6, 2000}};
  p.ops.add({{"linear", Dtype::bf16, 64, 32, 16, 1, 65536, 7168}, 2, 1e6, 12.5});
  return p;
}

TEST(ProfileFile, ComesBack) {
  const cost::MachineProfile p = parse_profile(profile_text(example()), "p.json");
  EXPECT_EQ(p.machine, "a \"machine\"");
  EXPECT_EQ(p.cores, 2);
  EXPECT_DOUBLE_EQ(p.bf16_flops_per_s, 2e12);
  EXPECT_EQ(p.together, (std::vector<double>{1, 0.9}));
  ASSERT_EQ(p.links.size(), 2u);
  EXPECT_EQ(p.links[1].over, cost::Link::nodes);
  ASSERT_EQ(p.ops.all().size(), 1u);
  EXPECT_DOUBLE_EQ(p.ops.us(example().ops.all()[0].shape, 2, 1e6), 12.5);
  EXPECT_EQ(profile_text(p), profile_text(example()));
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_profile(text, "p.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfileFile, WhatIsBrokenIsRefusedInOneLine) {
  const std::string good = profile_text(example());
  for (const std::string& text :
       {std::string(""), std::string("[1]"), std::string("{"), std::string(100000, '['),
        replaced(good, "_profile\": 1", "_profile\": 7"), replaced(good, "\"cores\": 2", "\"cores\": -2"),
        replaced(good, "\"cores\": 2", "\"cores\": \"2\""),
        replaced(good, "\"launch_us\": 0.2", "\"launch_us\": 1e999"), replaced(good, "\"links\"", "\"lonks\""),
        replaced(good, "\"threads\",2,64", "\"string\",2,64"),
        replaced(good, "\"threads\",2,64", "\"threads\",1,64"), replaced(good, ",12.5]", ",0]"),
        replaced(good, ",12.5]", "]"), replaced(good, "\"bf16\",2", "\"f7\",2")}) {
    const std::string said = refusal(text);
    EXPECT_TRUE(said.starts_with("p.json:")) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(ProfileFile, CutOrChangedAnywhereItIsReadOrRefused) {
  const std::string good = profile_text(example());
  for (size_t at = 0; at < good.size(); ++at) {
    (void)refusal(good.substr(0, at));
    std::string changed = good;
    changed[at] = static_cast<char>(RandomKey(1).bits(at));
    (void)refusal(changed);
  }
}

}  // namespace
}  // namespace heddle::planner
