// A run that stops and goes on from its checkpoint equals one that never stopped, bit for bit; a model that leaves
// as released files and comes back is the same model.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "heddle/base/random.h"
#include "heddle/config/model_json.h"
#include "heddle/ops/moment_byte.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/logits.h"
#include "heddle/train/released_model.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {
namespace {

TrainerOptions options_for_resume(const std::string& backend, Dtype dtype, uint64_t seed) {
  TrainerOptions o;
  o.model = test::small_model();
  o.model.num_nextn_predict_layers = 1;
  o.plan.microbatches = 2;
  o.plan.sequences = 2;
  o.plan.sequence_length = 16;
  o.plan.dtype = dtype;
  o.backend = backend;
  o.memory_bytes = 64 << 20;
  o.length = {100};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 5e-3};
  o.seed = seed;
  return o;
}

double step_resume(Trainer& trainer) {
  const RandomKey key(static_cast<uint64_t>(trainer.steps_done()));
  std::vector<std::vector<int32_t>> sequences(static_cast<size_t>(trainer.sequences_per_step()));
  uint64_t at = 0;
  for (auto& sequence : sequences) {
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t)
      sequence.push_back(static_cast<int32_t>(key.bits(at++) % 64));
  }
  return trainer.step(sequences).next_token_loss();
}

void expect_same_state(Trainer& a, Trainer& b, bool moments = true) {
  const std::vector<StateTensor> left = a.state(), right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    if (!moments && !left[i].is_master) continue;
    const formats::LogicalTensor x = formats::logical_tensor(left[i].name, left[i].view),
                                 y = formats::logical_tensor(right[i].name, right[i].view);
    EXPECT_EQ(std::memcmp(x.pieces[0].data(), y.pieces[0].data(), x.pieces[0].size()), 0) << x.name;
  }
}

class Resume : public testing::TestWithParam<std::tuple<const char*, Dtype>> {};

TEST_P(Resume, GoesOnAsIfItHadNotStopped) {
  const auto& [backend, dtype] = GetParam();
  const ScratchFolder folder;
  Trainer first(options_for_resume(backend, dtype, 5));
  first.initialise();
  for (int i = 0; i < 3; ++i) step_resume(first);
  save_trainer(folder.path().string(), {}, first);

  Trainer second(options_for_resume(backend, dtype, 77));
  second.initialise();
  load_trainer(open_checkpoint(folder.path().string()), second);
  expect_same_state(first, second);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step_resume(first), step_resume(second)) << "step " << i;
  expect_same_state(first, second);
}

TEST_P(Resume, KnowsAStateThatNoTrainingCanGoOnFrom) {
  const auto& [backend, dtype] = GetParam();
  Trainer trainer(options_for_resume(backend, dtype, 5));
  trainer.initialise();
  EXPECT_EQ(not_finite_in(trainer), "");
  const std::vector<StateTensor> state = trainer.state();
  const StateElements held(state[7]);
  ASSERT_GT(held.view().elements(), 0);
  std::memset(held.view().data, 0xff, static_cast<size_t>(size_of(state[7].dtype)));
  held.put();
  EXPECT_EQ(not_finite_in(trainer), state[7].name);
  trainer.initialise();
  EXPECT_EQ(not_finite_in(trainer), "");
}

TEST_P(Resume, LeavesAndComesBackAsTheSameModel) {
  const auto& [backend, dtype] = GetParam();
  const ScratchFolder folder;
  Trainer first(options_for_resume(backend, dtype, 5)), second(options_for_resume(backend, dtype, 77));
  first.initialise();
  second.initialise();
  for (int i = 0; i < 2; ++i) step_resume(first);
  const Dtype wide = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  export_released(folder.path().string(), first.options().model, master_tensors(first.state()), {.stored = wide});
  EXPECT_EQ(config::read_model_config(folder / "config.json"), first.options().model);
  import_released(folder.path().string(), master_tensors(second.state()));
  if (dtype == Dtype::f64) {  // the balancing bias leaves as F32
    for (const StateTensor& t : first.state()) {
      if (!t.parameter->balances) continue;
      for (int64_t i = 0; i < t.view.elements(); ++i) {
        t.view.as<double>()[i] = static_cast<double>(static_cast<float>(t.view.as<double>()[i]));
      }
    }
  }
  expect_same_state(first, second, false);
  first.weights_changed();
  second.weights_changed();
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
  EXPECT_EQ(next_logits(first, prompt), next_logits(second, prompt));
}

INSTANTIATE_TEST_SUITE_P(All, Resume,
                         testing::Values(std::tuple{"reference", Dtype::f64}, std::tuple{"reference", Dtype::f32},
                                         std::tuple{"reference", Dtype::bf16}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
                         });

// Through bf16 a byte comes back as it was; in fp32 it is the number that it stood for.
TEST(ResumeMoments, AreConvertedAsTheyAreRead) {
  using passes::Moments;
  const auto trainer_with = [](Moments moments) {
    TrainerOptions options = options_for_resume("host", Dtype::f32, 5);
    options.plan.update.moments = moments;
    return std::make_unique<Trainer>(options);
  };
  const ScratchFolder bytes, rounded;
  const auto first = trainer_with(Moments::fp8), between = trainer_with(Moments::bf16),
             second = trainer_with(Moments::fp8), wide = trainer_with(Moments::fp32);
  first->initialise();
  for (int i = 0; i < 3; ++i) step_resume(*first);
  save_trainer(bytes.path().string(), {}, *first);
  load_trainer(open_checkpoint(bytes.path().string()), *between);
  save_trainer(rounded.path().string(), {}, *between);
  load_trainer(open_checkpoint(rounded.path().string()), *second);
  expect_same_state(*first, *second);
  load_trainer(open_checkpoint(bytes.path().string()), *wide);
  std::map<std::string, device::TensorView> found;
  for (const StateTensor& tensor : wide->state()) found[tensor.name] = tensor.view;
  int moments = 0;
  for (const StateTensor& tensor : first->state()) {
    if (tensor.dtype != Dtype::u8) continue;
    ++moments;
    const device::TensorView &m = found.at(tensor.name), &v = found.at("v." + tensor.parameter->name);
    ASSERT_EQ(m.dtype, Dtype::f32);
    for (int64_t i = 0; i < m.elements(); ++i)
      ASSERT_EQ(m.as<float>()[i], fp8::moment_of_byte(tensor.view.as<uint8_t>()[i], v.as<float>()[i]))
          << tensor.name;
  }
  EXPECT_GT(moments, 5);
}

}  // namespace
}  // namespace heddle::train
