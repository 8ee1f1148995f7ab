// Published systems as anchors: searched over what each could do (examples/search), the layout that its authors
// chose must stand among the ten best, or within 3 % of the best. Ranks do not depend on any calibration: a scalar
// multiplies all plans of a search alike.
#include <gtest/gtest.h>
#include <toml++/toml.h>

#include <map>

#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/search.h"

namespace heddle::search {
namespace {

std::string word_of(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag ? "1" : "0";
  if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  return node.value<std::string>().value_or("?");
}

/// As `heddle search --restrict` reads it.
void restrict(Space& space, const char* example) {
  const toml::table table = toml::parse_file(std::string(HEDDLE_SOURCE_DIR "/examples/search/") + example);
  Software& w = space.job.software;
  const std::map<std::string, double*> numbers{{"state_bytes", &w.state_bytes},
                                               {"gradient_bytes", &w.gradient_bytes},
                                               {"reduce_bytes", &w.reduce_bytes},
                                               {"captured", &w.captured}};
  const std::map<std::string, bool*> flags{{"narrow_gates", &w.narrow_gates},
                                           {"sharded_gradients", &w.sharded_gradients}};
  for (const auto& [key, node] : table) {
    if (const toml::table* software = node.as_table()) {
      ASSERT_EQ(key.str(), "software");
      for (const auto& [name, value] : *software) {
        if (value.is_boolean())
          *flags.at(std::string(name.str())) = *value.value<bool>();
        else
          *numbers.at(std::string(name.str())) = *value.value<double>();
      }
      continue;
    }
    std::string words = std::string(key.str()) + "=";
    if (const toml::array* list = node.as_array())
      for (const toml::node& each : *list) words += (words.back() == '=' ? "" : ",") + word_of(each);
    else
      words += word_of(node);
    space.restriction.set(words);
  }
}

struct Published {
  const char* model;
  const char* device;
  int devices, batch;
  double sequence;
  cost::Precision precision;
  const char* example;
  bool natural;  // routing; else forced to be even
  int tp, cp, pp, ep;
};

Query query_of(const Published& p) {
  Query q;
  q.space.job.shape = *model::find_shape(p.model);
  q.space.job.device = *cost::accelerator_named(p.device);
  q.space.job.global_batch = p.batch;
  q.space.job.sequence = p.sequence;
  q.space.job.precision = p.precision;
  q.space.devices = p.devices;
  if (!p.natural) q.space.routing.spread = 0;
  restrict(q.space, p.example);
  return q;
}

void expect_among_the_best(const Published& p) {
  Query q = query_of(p);
  constexpr int kPlaces = 10;
  q.top = kPlaces;
  const Answer all = search(q);
  ASSERT_EQ(all.top.size(), size_t{kPlaces});
  int place = 0;
  for (size_t i = 0; i < all.top.size() && place == 0; ++i) {
    const plan::Degrees& l = all.top[i].job.mesh;
    if (l.tp == p.tp && l.cp == p.cp && l.pp == p.pp && l.ep == p.ep) place = static_cast<int>(i) + 1;
  }
  Restriction& only = q.space.restriction;
  only.tp = {p.tp}, only.cp = {p.cp}, only.pp = {p.pp}, only.ep = {p.ep};
  const Answer published = search(q);
  ASSERT_FALSE(published.top.empty()) << "does not fit: " << published.misfit;
  const double ratio = published.top.front().exact.step_s / all.top.front().exact.step_s;
  ::testing::Test::RecordProperty("place", place);
  ::testing::Test::RecordProperty("ratio", std::to_string(ratio));
  ::testing::Test::RecordProperty("tokens_per_s", std::to_string(published.top.front().tokens_per_s_per_device));
  EXPECT_TRUE(place >= 1 || ratio <= 1.03) << "place " << place << ", ratio " << ratio;
  EXPECT_GE(ratio, 1 - 1e-9);
}

// arXiv 2412.19437, section 3.
TEST(Anchors, DeepSeekV3On2048H800) {
  expect_among_the_best(
      {"DeepSeek-V3", "H800", 2048, 15360, 4096, cost::Precision::block8, "deepseek_v3.toml", true, 1, 1, 16, 64});
}

// Megatron-Bridge, performance summaries of 26.02 to 26.08, and the same scaled to four times the devices.
TEST(Anchors, DeepSeekV3On256GB200) {
  expect_among_the_best({"DeepSeek-V3", "GB200", 256, 4096, 4096, cost::Precision::mxfp8, "megatron_bridge.toml",
                         false, 1, 1, 4, 64});
}
TEST(Anchors, DeepSeekV3On1024GB200) {
  expect_among_the_best({"DeepSeek-V3", "GB200", 1024, 16384, 4096, cost::Precision::mxfp8, "megatron_bridge.toml",
                         false, 1, 1, 4, 64});
}

// Megatron-Bridge, 25.11. Its layout is that of NVIDIA's MLPerf submissions.
TEST(Anchors, Llama405BOn1024H100) {
  expect_among_the_best({"Llama-3.1-405B", "H100", 1024, 512, 8192, cost::Precision::fp8,
                         "llama31_405b_mlperf.toml", false, 8, 2, 8, 1});
}

// arXiv 2407.21783, table 4, the second row.
TEST(Anchors, Llama405BOn16384H100) {
  expect_among_the_best(
      {"Llama-3.1-405B", "H100", 16384, 2048, 8192, cost::Precision::bf16, "llama3_405b.toml", true, 8, 1, 16, 1});
}

// Megatron-Bridge, performance summaries of 26.02 to 26.08: the same layout in all of them.
TEST(Anchors, Qwen3235BOn256GB300) {
  expect_among_the_best(
      {"Qwen3-235B-A22B", "GB300", 256, 8192, 4096, cost::Precision::mxfp8, "qwen3_235b.toml", false, 1, 1, 4, 32});
}

// The same, 26.02 to 26.04.01.
TEST(Anchors, Qwen3235BOn256B200) {
  expect_among_the_best(
      {"Qwen3-235B-A22B", "B200", 256, 8192, 4096, cost::Precision::mxfp8, "qwen3_235b.toml", false, 1, 1, 8, 8});
}

// Megatron-MoE-ModelZoo's and the Megatron-Core report's layout (arXiv 2603.07685).
TEST(Anchors, Qwen3235BOn256GB200) {
  expect_among_the_best(
      {"Qwen3-235B-A22B", "GB200", 256, 3072, 4096, cost::Precision::mxfp8, "qwen3_235b.toml", false, 1, 1, 4, 64});
}

// Megatron-Bridge, performance summaries of 26.02 to 26.06: the same layout in all of them.
TEST(Anchors, KimiK2On256GB300) {
  expect_among_the_best(
      {"Kimi-K2", "GB300", 256, 4096, 4096, cost::Precision::mxfp8, "kimi_k2.toml", false, 1, 1, 4, 64});
}

}  // namespace
}  // namespace heddle::search
