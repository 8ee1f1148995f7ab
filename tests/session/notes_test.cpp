// What is said of a run's text, and of what changes where it goes on.
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/base/files/output_file.h"
#include "heddle/data/token_file.h"
#include "heddle/session/notes/data_notes.h"
#include "heddle/session/notes/resume_notes.h"
#include "tests/support/scratch_folder.h"

namespace heddle::session {
namespace {

config::RunConfig configured(const std::string& train) {
  return config::parse_run_config("[train]\nglobal_batch = 8\nsequence_length = 16\n" + train, "run.toml");
}

data::Dataset dataset(const ScratchFolder& folder, int documents) {
  data::TokenFileWriter writer(folder / "text", 300);
  for (int i = 0; i < documents; ++i) writer.add_document(std::vector<int32_t>(170, i % 300));
  writer.commit();
  return data::Dataset(
      {.parts = {{folder / "text"}}, .sequence_length = 16, .vocabulary = 300, .heldout_fraction = 0.02});
}

TEST(DataNotes, NothingHeldOutAndTooManyReadings) {
  const ScratchFolder few, many;
  const data::Dataset small = dataset(few, 2), large = dataset(many, 400);
  ASSERT_EQ(small.heldout_sequences(), 0);
  ASSERT_GT(large.heldout_sequences(), 0);
  const int64_t epoch = large.train_sequences() / 8;
  EXPECT_TRUE(data_notes(configured(fmt::format("steps = {}\n", 4 * epoch - 1)), large).empty());
  const std::vector<std::string> often = data_notes(configured(fmt::format("steps = {}\n", 6 * epoch)), large);
  ASSERT_EQ(often.size(), 1u);
  EXPECT_NE(often[0].find("it is read 6.0 times"), std::string::npos) << often[0];
  const std::vector<std::string> both = data_notes(configured("steps = 1000\n"), small);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_NE(both[0].find("none of the text's 2 documents that fills a sequence was held out"), std::string::npos)
      << both[0];
  EXPECT_NE(both[0].find("no held-out loss"), std::string::npos) << both[0];
}

TEST(DataNotes, ARunByTheClockIsToldOnce) {
  const ScratchFolder folder;
  const data::Dataset text = dataset(folder, 100);
  const config::RunConfig by_clock = configured("minutes = 1\n");
  EXPECT_TRUE(data_notes(by_clock, text).empty() || text.heldout_sequences() == 0);
  int told = 0;
  for (int64_t step = 1; step < 2000; ++step) {
    if (!epoch_note(by_clock, text, step)) continue;
    ++told;
    EXPECT_GT(epochs_of(by_clock, text, step), kUsefulEpochs);
  }
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(epoch_note(configured("steps = 5000\n"), text, 2000));
}

TEST(ResumeNotes, WhatChanges) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path().string()};
  const std::string was = "steps = 100\nwarmup_steps = 10\ndecay_steps = 20\nlearning_rate = 1e-3\n";
  write_file(folder.config(), config::toml_of(configured(was)));
  train::CheckpointState state;
  state.step = 50;
  state.layout["dtype"] = "bf16";
  EXPECT_TRUE(resume_notes(folder, configured(was), &state, Dtype::bf16).empty());
  const std::vector<std::string> rate =
      resume_notes(folder, configured(was + "min_learning_rate = 2e-4\n"), &state, Dtype::bf16);
  ASSERT_EQ(rate.size(), 1u);
  EXPECT_EQ(rate[0], "other settings than before: train.min_learning_rate 0.0002 (was 0.0001)");
  const std::vector<std::string> dtype = resume_notes(folder, configured(was), &state, Dtype::f32);
  ASSERT_EQ(dtype.size(), 1u);
  EXPECT_NE(dtype[0].find("are f32 from here on, bf16 before"), std::string::npos) << dtype[0];
}

TEST(ResumeNotes, BehindTheDecay) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path().string()};
  const std::string rates = "warmup_steps = 10\ndecay_steps = 20\nlearning_rate = 1e-3\nmin_learning_rate = 1e-4\n";
  write_file(folder.config(), config::toml_of(configured("steps = 100\n" + rates)));
  const auto notes = [&](int64_t step, const std::string& now) {
    train::CheckpointState state;
    state.step = step;
    std::vector<std::string> all = resume_notes(folder, configured(now + rates), &state, Dtype::bf16);
    std::erase_if(all, [](const std::string& note) { return note.find("lies in the decay") == std::string::npos; });
    return all;
  };
  ASSERT_EQ(notes(100, "steps = 200\n").size(), 1u);
  EXPECT_NE(notes(100, "steps = 200\n")[0].find("goes from 0.0001 back up to 0.001"), std::string::npos)
      << notes(100, "steps = 200\n")[0];
  EXPECT_EQ(notes(90, "steps = 200\n").size(), 1u);
  EXPECT_EQ(notes(80, "steps = 200\n").size(), 0u) << "before the decay";
  EXPECT_EQ(notes(90, "steps = 100\n").size(), 0u) << "as it was";
  EXPECT_EQ(notes(100, "steps = 101\n").size(), 0u) << "still at the end of the decay";
}

}  // namespace
}  // namespace heddle::session
