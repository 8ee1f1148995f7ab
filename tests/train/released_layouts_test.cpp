// A run that begins from released files has the same weights in every layout: each rank reads its own elements of
// whole tensors, whatever the family calls them and however its files hold them.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "heddle/train/adapters/peft_files.h"
#include "heddle/train/adapters/start_adapters.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/released_model.h"
#include "heddle/train/start_weights.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/family_models.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"

namespace heddle::train {
namespace {

constexpr int64_t kSequencesOfStep = 4;

struct ReleasedLayoutsLayout {
  const char* name;
  plan::Degrees mesh;
  Dtype dtype = Dtype::f64;  // in bf16 masters lie apart from the weights, in shares of the ranks with copies
};
const ReleasedLayoutsLayout kLayoutsReleasedLayouts[] = {
    {"tp2", {.tp = 2}},
    {"dp2", {.dp = 2}},
    {"cp2", {.cp = 2}},
    {"pp2", {.pp = 2}},
    {"dp2_ep2", {.dp = 2, .ep = 2}},
    {"dp2_etp2", {.dp = 2, .etp = 2}},
    {"tp2_dp2_ep2_etp2", {.tp = 2, .dp = 2, .ep = 2, .etp = 2}},
    {"tp2_pp2", {.tp = 2, .pp = 2}},
    {"tp2_cp2_ep4", {.tp = 2, .cp = 2, .ep = 4}},
    {"tp2_dp2_in_bf16", {.tp = 2, .dp = 2, .ep = 2}, Dtype::bf16},
    {"dp2_in_bf16", {.dp = 2}, Dtype::bf16},
};

TrainerOptions options_of(const model::ModelConfig& model, const ReleasedLayoutsLayout& layout, uint64_t seed,
                          const passes::Adapters& adapters = {}) {
  TrainerOptions o;
  o.model = model;
  o.plan.mesh = layout.mesh;
  o.plan.lora = adapters;
  if (adapters.rank > 0 && o.model.selects()) o.model.index_stage = model::IndexStage::off;
  if (model.recurs()) o.plan.parallel.context = model::Context::ulysses;
  if (model.is_compressed() || model.selects()) o.plan.parallel.context = model::Context::gather;
  o.plan.sequences = 1;
  o.plan.microbatches = static_cast<int>(kSequencesOfStep) / layout.mesh.dp;
  o.plan.sequence_length = 16;
  o.plan.dtype = layout.dtype;
  o.backend = "reference";
  o.memory_bytes = 16 << 20;
  o.length = {10};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 1e-3};
  o.seed = seed;
  return o;
}

// Numbers of no pattern for every tensor but tables of experts by token id; for biases and gains too.
void draw(Trainer& trainer, double size) {
  for (const StateTensor& tensor : trainer.state()) {
    if (!tensor.is_master || (trainer.options().is_adapted() && tensor.is_frozen())) continue;
    if (tensor.parameter->start == model::Parameter::Start::hashed_experts) continue;
    const RandomKey key = RandomKey(9).with(tensor.name);
    for (int64_t i = 0; i < tensor.view.elements(); ++i) {
      double& x = tensor.view.as<double>()[i];
      x = (tensor.parameter->start == model::Parameter::Start::ones ? 1 : 0) +
          size * key.normal(static_cast<uint64_t>(i));
    }
  }
  trainer.weights_changed();
}

void leave(const std::string& folder, Trainer& trainer) {
  export_released(folder, trainer.options().model, master_tensors(trainer.state()), {.stored = Dtype::f64});
}

/// The released files of a family, and of a checkpoint and PEFT's files of adapters beside them where there are
/// any.
struct Files {
  ScratchFolder base, adapter, checkpoints;
  bool has_adapter = false;
};
passes::Adapters adapters_of(const model::ModelConfig& model) {
  return {.rank = 2, .alpha = 4, .targets = model.is_compressed() ? "q_b_proj, o_b_proj, experts" : "all"};
}

const Files& files_of(const config::Family& family) {
  static std::map<std::string, std::unique_ptr<Files>> made;
  std::unique_ptr<Files>& files = made[family.model_type];
  if (files) return *files;
  files = std::make_unique<Files>();
  const model::ModelConfig model = test::small_model_of(family);
  Trainer source(options_of(model, {"", {}}, 5));
  source.initialise();
  draw(source, 0.1);
  leave(files->base.path().string(), source);
  const passes::Adapters adapters = adapters_of(model);
  Trainer adapted(options_of(model, {"", {}}, 6, adapters));
  adapted.initialise();
  start_from(files->base.path().string(), config::StartMoments::fresh, adapted);
  draw(adapted, 0.1);
  files->has_adapter = why_no_adapter_files(adapted.options().model, adapters).empty();
  if (files->has_adapter) {
    export_adapters(files->adapter.path().string(), adapted.options().model, adapters,
                    master_tensors(adapted.state()), files->base.path().string());
  }
  save_trainer(files->checkpoints.path().string(), {}, adapted);
  return *files;
}

// Of each family whose files are written at all: the others are written as one of these.
std::vector<const config::Family*> written_families() {
  std::vector<const config::Family*> all;
  for (const config::Family& family : config::families()) {
    if (&config::family_of(test::small_model_of(family)) == &family) all.push_back(&family);
  }
  return all;
}

// Every element that a rank holds is that of the whole tensor, to the bit.
void expect_same_elements(Trainer& rank, const std::vector<StateTensor>& whole) {
  std::map<std::string_view, const StateTensor*> by_name;
  for (const StateTensor& tensor : whole) by_name[tensor.name] = &tensor;
  int64_t compared = 0;
  for (const StateTensor& tensor : rank.state()) {
    if (!tensor.is_master || !tensor.is_here()) continue;
    const StateTensor& expected = *by_name.at(tensor.name);
    ASSERT_EQ(tensor.shape, expected.shape) << tensor.name;
    ASSERT_EQ(tensor.dtype, expected.dtype) << tensor.name;
    const StateElements held(tensor), all(expected);
    const int64_t width = size_of(tensor.dtype);
    for (const model::Extent& run : rank.held_extents(tensor)) {
      const auto* found = static_cast<const std::byte*>(held.view().data) + run.local * width;
      const auto* wanted = static_cast<const std::byte*>(all.view().data) + run.whole * width;
      ASSERT_EQ(std::memcmp(found, wanted, static_cast<size_t>(run.count * width)), 0)
          << tensor.name << ", elements from " << run.whole << " on, of rank " << rank.ranks().rank();
      compared += run.count;
    }
  }
  EXPECT_GT(compared, 0);
}

class FromFiles : public testing::TestWithParam<std::tuple<const config::Family*, ReleasedLayoutsLayout>> {
 protected:
  model::ModelConfig model() const { return test::small_model_of(*std::get<0>(GetParam())); }
  const ReleasedLayoutsLayout& layout() const { return std::get<1>(GetParam()); }
  void expect_as_one_rank(const std::function<void(Trainer&)>& begin, const passes::Adapters& adapters = {}) {
    Trainer one(options_of(model(), {"", {}, layout().dtype}, 7, adapters));
    begin(one);
    RankTrainers ranks(options_of(model(), layout(), 8, adapters));
    ranks.each(begin);
    const std::vector<StateTensor> whole = one.state();
    for (int r = 0; r < ranks.size(); ++r) ASSERT_NO_FATAL_FAILURE(expect_same_elements(ranks[r], whole));
    const auto sequences = random_sequences(one, kSequencesOfStep, 3);
    const StepResult a = one.step(sequences), b = ranks.step(sequences);
    const double tolerance = layout().dtype == Dtype::f64 ? 1e-10 : 3e-2;
    EXPECT_NEAR(a.next_token_loss(), b.next_token_loss(), tolerance * a.next_token_loss());
    EXPECT_NEAR(a.gradient_norm(), b.gradient_norm(), tolerance * a.gradient_norm());
    EXPECT_GT(a.gradient_norm(), 0);
  }
};

TEST_P(FromFiles, EveryLayoutHasTheWeightsOfOneRank) {
  const std::string base = files_of(*std::get<0>(GetParam())).base.path().string();
  expect_as_one_rank([&](Trainer& trainer) {
    trainer.initialise();
    EXPECT_EQ(start_from(base, config::StartMoments::fresh, trainer), std::vector<std::string>());
  });
}

// Beside a base of files, begun from an adapter of files, and gone on with from a checkpoint.
class AdaptersFromFiles : public FromFiles {};
TEST_P(AdaptersFromFiles, EveryLayoutHasTheAdaptersOfOneRank) {
  const Files& files = files_of(*std::get<0>(GetParam()));
  if (files.has_adapter) {
    expect_as_one_rank(
        [&](Trainer& trainer) {
          trainer.initialise();
          start_from(files.base.path().string(), config::StartMoments::fresh, trainer);
          start_adapters_from(files.adapter.path().string(), trainer);
        },
        adapters_of(model()));
  }
  expect_as_one_rank(
      [&](Trainer& trainer) { load_trainer(open_checkpoint(files.checkpoints.path().string()), trainer); },
      adapters_of(model()));
}

// Frozen weights may come from a checkpoint that several ranks wrote: the same digest names them in either form.
TEST(BaseOfAdapters, MayLieInShards) {
  const ScratchFolder folder;
  const model::ModelConfig model = test::small_model_of(*written_families().back());
  std::string digest;
  for (const plan::Degrees& mesh : {plan::Degrees{}, plan::Degrees{.tp = 2}}) {
    RankTrainers ranks(options_of(model, {"", mesh}, 7));
    const std::string at = folder / fmt::format("of-{}", mesh.tp);
    ranks.each([&](Trainer& trainer) {
      trainer.initialise();
      save_trainer(at, {}, trainer);
    });
    RankTrainers beside(options_of(model, {"", {.dp = 2}}, 8, adapters_of(model)));
    beside.each([&](Trainer& trainer) {
      trainer.initialise();
      start_from(at, config::StartMoments::fresh, trainer);
      save_trainer(folder / "adapters", {}, trainer);
    });
    if (digest.empty()) digest = beside[0].base().digest;
    EXPECT_EQ(beside[0].base().digest, digest);
    RankTrainers again(options_of(model, {"", {.tp = 2}}, 9, adapters_of(model)));
    again.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder / "adapters"), trainer); });
    EXPECT_EQ(again[0].base().digest, digest);
  }
}

// Experts are cut where there are some. A family whose folders name tensors as Heddle does has every layout if it
// is one of three, and every third layout otherwise.
std::vector<std::tuple<const config::Family*, ReleasedLayoutsLayout>> cases(bool adapted) {
  std::vector<std::tuple<const config::Family*, ReleasedLayoutsLayout>> all;
  const std::set<std::string> whole{"deepseek_v3", "qwen3", "qwen3_moe"};
  size_t shift = 0;
  for (const config::Family* family : written_families()) {
    const bool plain =
        family->spelt == nullptr && family->stacked == nullptr && !whole.contains(family->model_type);
    if (plain) ++shift;
    for (size_t i = 0; i < std::size(kLayoutsReleasedLayouts); ++i) {
      const ReleasedLayoutsLayout& layout = kLayoutsReleasedLayouts[i];
      if (plain && (i + shift) % 3 != 0) continue;
      const bool cuts_experts = layout.mesh.ep * layout.mesh.etp > 1;
      if (cuts_experts && !test::small_model_of(*family).has_experts()) continue;
      if (adapted && layout.dtype != Dtype::f64) continue;  // frozen weights are bf16 themselves
      all.emplace_back(family, layout);
    }
  }
  return all;
}
const auto kNameOf = [](const auto& of) {
  return fmt::format("{}_{}", std::get<0>(of.param)->model_type, std::get<1>(of.param).name);
};
INSTANTIATE_TEST_SUITE_P(ReleasedLayouts, FromFiles, testing::ValuesIn(cases(false)), kNameOf);
INSTANTIATE_TEST_SUITE_P(ReleasedLayouts, AdaptersFromFiles, testing::ValuesIn(cases(true)), kNameOf);

}  // namespace
}  // namespace heddle::train
