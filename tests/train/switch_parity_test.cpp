// Every switch of the table that claims to keep the maths keeps it: a small model is trained with the switch on and
// off.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/random.h"
#include "heddle/plan/switches.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::train {
namespace {

constexpr const char* kSmall = R"(
[model]
vocab_size = 96
hidden_size = 32
num_hidden_layers = 2
intermediate_size = 64
num_attention_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 8
v_head_dim = 8
n_routed_experts = 4
num_experts_per_tok = 2
moe_intermediate_size = 32
num_nextn_predict_layers = 1
sequence_aux_loss_alpha = 1e-3
z_loss_weight = 1e-3
initializer_range = 0.2
[train]
global_batch = 4
microbatch = 2
sequence_length = 16
warmup_steps = 0
[device]
threads = 1
)";

struct Outcome {
  std::vector<double> losses;
  std::vector<std::string> names;
  std::vector<std::vector<double>> state;  // masters and moments after the last step
};

Outcome train_with(const std::vector<std::string>& set) {
  const config::RunConfig config = config::parse_run_config(kSmall, "small.toml", set);
  Trainer trainer(trainer_options_of(config));
  trainer.initialise();
  Outcome outcome;
  for (uint64_t step = 0; step < 2; ++step) {
    std::vector<std::vector<int32_t>> sequences;
    for (int64_t i = 0; i < trainer.sequences_per_step(); ++i) {
      std::vector<int32_t>& s = sequences.emplace_back();
      const RandomKey key = RandomKey(11).with(step).with(static_cast<uint64_t>(i));
      for (int64_t t = 0; t < trainer.sequence_tokens(); ++t) {
        s.push_back(static_cast<int32_t>(key.bits(static_cast<uint64_t>(t)) % 96));
      }
    }
    outcome.losses.push_back(trainer.step(sequences).next_token_loss);
  }
  for (const StateTensor& tensor : trainer.state()) {
    outcome.names.push_back(tensor.name);
    std::vector<double>& values = outcome.state.emplace_back();
    for (int64_t i = 0; i < tensor.view.elements(); ++i) {
      values.push_back(tensor.view.dtype == Dtype::f64 ? tensor.view.as<double>()[i] : tensor.view.as<float>()[i]);
    }
  }
  return outcome;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

std::vector<plan::Switch> on_off_switches(plan::MathsClass maths) {
  std::vector<plan::Switch> found;
  for (const plan::Switch& s : plan::switches()) {
    if (s.values == std::vector<std::string>{"true", "false"} && s.maths == maths) found.push_back(s);
  }
  return found;
}

std::string test_name(const testing::TestParamInfo<plan::Switch>& info) {
  std::string name = info.param.key;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

class SwitchParity : public testing::TestWithParam<plan::Switch> {};

// The first moments are sums of gradients, so they show what the gradients do. Masters don't: AdamW divides a
// gradient near zero by its own size.
// The grid of exact sums is coarser than fp64, and is held in fp32.
TEST_P(SwitchParity, HoldsOnReference) {
  const bool grid = GetParam().key == "train.exact_sums";
  const std::string dtype = grid ? "device.dtype=f32" : "device.dtype=f64";
  const Outcome on = train_with({"device.backend=reference", dtype, GetParam().key + "=true"});
  const Outcome off = train_with({"device.backend=reference", dtype, GetParam().key + "=false"});
  ASSERT_EQ(on.names, off.names);
  EXPECT_LE(relative(on.losses, off.losses), grid ? 1e-6 : 1e-12);
  for (size_t i = 0; i < on.state.size(); ++i) {
    if (!on.names[i].starts_with("m.")) continue;
    EXPECT_LE(relative(on.state[i], off.state[i]), grid ? 1e-5 : 1e-10) << on.names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Table, SwitchParity, testing::ValuesIn(on_off_switches(plan::MathsClass::reassociates)),
                         test_name);

class BitwiseSwitch : public testing::TestWithParam<plan::Switch> {};

TEST_P(BitwiseSwitch, KeepsEveryBit) {
  for (const std::vector<std::string>& set : std::vector<std::vector<std::string>>{
           {"device.backend=reference", "device.dtype=f64"}, {"device.dtype=f32"}, {"device.dtype=bf16"}}) {
    std::vector<std::string> without = set;
    without.push_back(GetParam().key + "=false");
    const Outcome on = train_with(set), off = train_with(without);
    EXPECT_EQ(on.losses, off.losses) << set.back();
    EXPECT_EQ(on.state, off.state) << set.back();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, BitwiseSwitch, testing::ValuesIn(on_off_switches(plan::MathsClass::bitwise)),
                         test_name);

TEST(RecomputeSwitch, EachWordKeepsEveryBit) {
  const std::vector<std::string> set{"device.dtype=bf16"};
  const Outcome kept = train_with(set);
  for (const std::string& word : plan::find_switch("memory.recompute")->values) {
    const Outcome again = train_with({set[0], "memory.recompute=" + word});
    EXPECT_EQ(again.losses, kept.losses) << word;
    EXPECT_EQ(again.state, kept.state) << word;
  }
}

// The comparison sees a change of the maths: the smallest of those that a switch could make by mistake.
TEST(SwitchParityItself, SeesAChangedFactor) {
  const Outcome a = train_with({"device.backend=reference", "device.dtype=f64"});
  const Outcome b = train_with({"device.backend=reference", "device.dtype=f64", "model.z_loss_weight=1.001e-3"});
  double worst = 0;
  for (size_t i = 0; i < a.state.size(); ++i) {
    if (a.names[i].starts_with("m.")) worst = std::max(worst, relative(a.state[i], b.state[i]));
  }
  EXPECT_GT(worst, 1e-6);
}

}  // namespace
}  // namespace heddle::train
