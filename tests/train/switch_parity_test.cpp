// Every switch of the table that claims to keep the maths keeps it: a small model is trained with each of its
// values and without, on as many ranks as it takes for the switch to have something to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "heddle/model/keys.h"
#include "heddle/train/parameters.h"
#include "tests/support/relative.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

// The small model with all that a switch can have to do with, in a run of few steps.
std::string small_run(const std::vector<std::string>& set) {
  config::RunConfig c = small_config(4, 2);
  if (std::find(set.begin(), set.end(), "model.attention=grouped") != set.end()) {
    c.model.attention = model::ModelConfig::Attention::grouped;
    c.model.num_key_value_heads = c.model.num_attention_heads;
    c.model.head_dim = 8;
    model::reset_foreign_keys(c.model);
  }
  c.model.num_nextn_predict_layers = 1;
  c.model.sequence_aux_loss_alpha = c.model.z_loss_weight = 1e-3;
  c.model.initializer_range = 0.2;
  c.train.warmup_steps = 0;
  return config::toml_of(c, config::RunConfig());
}

struct SwitchParityOutcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> state;  // whole masters and moments after the last step
};

SwitchParityOutcome train_with_switch_parity(const std::vector<std::string>& set) {
  const config::RunConfig config = config::parse_run_config(small_run(set), "small.toml", set);
  std::vector<int> node_of;  // two ranks on a node
  for (int r = 0; r < config.ranks(); ++r) node_of.push_back(r / 2);
  RankTrainers ranks(trainer_options_of(config), node_of);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  SwitchParityOutcome outcome;
  for (uint64_t step = 0; step < 2; ++step) {
    outcome.losses.push_back(
        ranks.step(random_sequences(ranks[0], ranks[0].sequences_per_step(), 11 + step)).next_token_loss());
  }
  for (int r = 0; r < ranks.size(); ++r) {
    for (const StateTensor& tensor : ranks[r].state()) {
      std::vector<double>& whole = outcome.state[tensor.name];
      whole.resize(static_cast<size_t>(tensor.elements()));
      if (!tensor.is_here()) continue;
      const StateElements held(tensor);
      for (const model::Extent& run : ranks[r].held_extents(tensor)) {
        for (int64_t i = 0; i < run.count; ++i) {
          whole[static_cast<size_t>(run.whole + i)] = held.view().dtype == Dtype::f64
                                                          ? held.view().as<double>()[run.local + i]
                                                          : held.view().as<float>()[run.local + i];
        }
      }
    }
  }
  return outcome;
}

// What the same set gives without a switch is trained once.
const SwitchParityOutcome& without(const std::vector<std::string>& set) {
  static std::map<std::vector<std::string>, SwitchParityOutcome> known;
  const auto at = known.find(set);
  return at != known.end() ? at->second : known.emplace(set, train_with_switch_parity(set)).first->second;
}

struct Trial {
  std::string key, set;
  plan::MathsClass maths;
  std::vector<std::string> beside;
  friend std::ostream& operator<<(std::ostream& out, const Trial& trial) { return out << trial.set; }
};

// Every value but the default of every such switch; of a switch that has no other its only one, done twice.
std::vector<Trial> trials() {
  std::vector<Trial> all;
  const config::RunConfig usual;
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch || s.is_switch(plan::MathsClass::changes_maths)) continue;
    const std::vector<config::Value> values = s.tried_values();
    for (const config::Value& value : values) {
      if (values.size() > 1 && value == s.get(usual)) continue;
      const bool reassociates = std::ranges::count(s.as_switch->reassociating, value) > 0;
      all.push_back({s.key, s.key + "=" + plan::text_of(value),
                     reassociates ? plan::MathsClass::reassociates : s.as_switch->maths, s.as_switch->beside});
      const Trial plain = all.back();
      if (s.key == "memory.optimizer" || s.key == "memory.master") {
        Trial at_once = plain;  // with updates that are joined across homes, forms and shares of state
        at_once.beside.emplace_back("device.join_updates=on");
        all.push_back(at_once);
      }
      if (!s.key.starts_with("memory.optimizer") && s.key != "memory.master") continue;
      // Homes and forms of state, also of the rule that keeps less of it.
      Trial by_muon = plain;
      by_muon.beside.emplace_back("train.optimizer=muon");
      all.push_back(by_muon);
    }
  }
  return all;
}

std::vector<std::string> joined_switch_parity(std::vector<std::string> set, const std::vector<std::string>& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

class SwitchParity : public testing::TestWithParam<Trial> {};

// The first moments are sums of gradients, so they show what the gradients do. Masters don't: AdamW divides a
// gradient near zero by its own size.
void expect_near_switch_parity(const SwitchParityOutcome& on, const SwitchParityOutcome& off, bool in_floats) {
  ASSERT_EQ(on.state.size(), off.state.size());
  EXPECT_LE(test::relative(on.losses, off.losses), in_floats ? 1e-6 : 1e-12);
  for (const auto& [name, values] : on.state) {
    if (!name.starts_with("m.")) continue;
    EXPECT_LE(test::relative(values, off.state.at(name)), in_floats ? 1e-5 : 1e-10) << name;
  }
}

TEST_P(SwitchParity, HoldsItsClass) {
  const Trial& trial = GetParam();
  if (trial.maths == plan::MathsClass::reassociates) {
    const std::vector<std::string> set =
        joined_switch_parity({"device.backend=reference", "device.dtype=f64"}, trial.beside);
    const bool in_floats = std::ranges::count(trial.beside, "device.dtype=f32") > 0;
    return expect_near_switch_parity(train_with_switch_parity(joined_switch_parity(set, {trial.set})), without(set),
                                     in_floats);
  }
  for (const std::vector<std::string>& dtype : std::vector<std::vector<std::string>>{
           {"device.backend=reference", "device.dtype=f64"}, {"device.dtype=f32"}, {"device.dtype=bf16"}}) {
    const std::vector<std::string> set = joined_switch_parity(dtype, trial.beside);
    const SwitchParityOutcome on = train_with_switch_parity(joined_switch_parity(set, {trial.set}));
    const SwitchParityOutcome& off = without(set);
    EXPECT_EQ(on.losses, off.losses) << dtype.back();
    EXPECT_TRUE(on.state == off.state) << dtype.back();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, SwitchParity, testing::ValuesIn(trials()), [](const auto& info) {
  std::string name = info.param.set;
  if (std::ranges::count(info.param.beside, "train.optimizer=muon") > 0) name += "_by_muon";
  if (std::ranges::count(info.param.beside, "device.join_updates=on") > 0) name += "_joined";
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(SwitchParityItself, TriesEverySwitchThatKeepsTheMaths) {
  std::set<std::string> tried;
  for (const Trial& trial : trials()) tried.insert(trial.key);
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch) continue;
    EXPECT_EQ(tried.contains(s.key), !s.is_switch(plan::MathsClass::changes_maths)) << s.key;
  }
}

// What the rows say of clipping holds: without exact sums some value shows in the norm's last place, and no more
// than that; with them none does.
TEST(SwitchParityItself, ClippingShowsWhereStagesLie) {
  const config::RunConfig usual;
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch || s.as_switch->unless.empty()) continue;
    std::vector<std::string> set =
        joined_switch_parity({"device.backend=reference", "device.dtype=f64"}, s.as_switch->beside);
    std::erase(set, "train.clip_norm=0");
    set = joined_switch_parity(set, {"train.clip_norm=0.01", "model.num_hidden_layers=8"});
    const std::vector<std::string> exact = joined_switch_parity(set, {"train.exact_sums=true"});
    std::vector<std::string> trials;
    for (const config::Value& value : s.tried_values()) {
      if (value == s.get(usual) || std::ranges::count(s.as_switch->reassociating, value) > 0) continue;
      trials.push_back(s.key + "=" + plan::text_of(value));
    }
    // Cuts of this model, which no row can know.
    if (s.key == "parallel.layout") {
      trials = {"parallel.layout=Et|tttttttmL", "parallel.layout=Ettt|tttttmL", "parallel.layout=Etttttt|ttmL"};
    }
    int seen = 0;
    for (const std::string& on : trials) {
      const SwitchParityOutcome plain = train_with_switch_parity(joined_switch_parity(set, {on}));
      expect_near_switch_parity(plain, without(set), false);
      seen += plain.state == without(set).state ? 0 : 1;
      EXPECT_TRUE(train_with_switch_parity(joined_switch_parity(exact, {on})).state == without(exact).state) << on;
    }
    EXPECT_GT(seen, 0) << s.key << ": nothing shows, so nothing need be said";
  }
}

// The comparison sees a change of the maths: the smallest of those that a switch could make by mistake.
TEST(SwitchParityItself, SeesAChangedFactor) {
  const SwitchParityOutcome a = train_with_switch_parity({"device.backend=reference", "device.dtype=f64"});
  const SwitchParityOutcome b =
      train_with_switch_parity({"device.backend=reference", "device.dtype=f64", "model.z_loss_weight=1.001e-3"});
  double worst = 0;
  for (const auto& [name, values] : a.state) {
    if (name.starts_with("m.")) worst = std::max(worst, test::relative(values, b.state.at(name)));
  }
  EXPECT_GT(worst, 1e-6);
}

}  // namespace
}  // namespace heddle::train
