// Layers of pipeline stages as flags of launch scripts name them.
#include <gtest/gtest.h>

#include <algorithm>

#include "advisor/script/launch_script.h"
#include "advisor/script/rewrite_script.h"
#include "heddle/base/error.h"
#include "heddle/plan/layout.h"

namespace heddle::advisor {
namespace {

std::string complaint_of(const std::string& text) {
  try {
    read_launch_script(text, "run.sh");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StageFlags, StagesThatFlagsNameAreTheJobs) {
  const auto script = [](const std::string& flags, int layers) {
    return fmt::format(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers {} --hidden-size 512 --num-attention-heads 8 "
        "--seq-length 1024 --micro-batch-size 1 --global-batch-size 64 --bf16 --pipeline-model-parallel-size 4 "
        "{}\n",
        layers, flags);
  };
  const auto stages = [&](const std::string& flags, int layers) {
    const LaunchScript s = read_launch_script(script(flags, layers), "run.sh");
    EXPECT_EQ(s.others.pace, std::vector<std::string>{}) << flags;
    const int all = 4 * s.launch.job.chunks;
    std::string text;
    if (s.launch.layout.empty()) return fmt::format("{} equal", all);
    for (const std::string& stage : plan::letters_of_layout(s.launch.layout, all))
      text += fmt::format("{}{}", text.empty() ? "" : " ", std::count(stage.begin(), stage.end(), 't'));
    return text;
  };
  EXPECT_EQ(stages("", 32), "4 equal");
  EXPECT_EQ(stages("--decoder-first-pipeline-num-layers 6", 30), "6 8 8 8");
  EXPECT_EQ(stages("--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 5", 30), "7 9 9 5");
  EXPECT_EQ(stages("--decoder-last-pipeline-num-layers 6 --num-virtual-stages-per-pipeline-rank 2", 30),
            "4 4 4 3 4 4 4 3");
  EXPECT_EQ(stages("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", 30),
            "7 8 8 7");
  EXPECT_EQ(stages("--account-for-loss-in-pipeline-split --num-layers-per-virtual-pipeline-stage 4", 31),
            "4 4 4 4 4 4 4 3");
  EXPECT_EQ(stages("--num-layer-list 7,8,8,7", 30), "7 8 8 7");
  EXPECT_EQ(stages("--num-layer-list 8,8,8,8", 32), "4 equal");
  EXPECT_EQ(
      stages("--pipeline-num-transformer-layers [[0,1],[1,1]*2,[3,0]] --num-virtual-stages-per-pipeline-rank 2", 8),
      "0 1 1 3 1 1 1 0");
  EXPECT_EQ(stages("--noop-layers 0,31 --num-layer-list 8,8,8,8", 32), "7 8 8 7");
  for (const auto& [flags, accepted] :
       {std::pair("--decoder-first-pipeline-num-layers 5", "the same part of 30 layers for each of 3 other ranks"),
        {"--num-layer-list 8,8,8", "4 numbers that together are 30"},
        {"--num-layer-list 8,8,8,8", "4 numbers that together are 30"},
        {"--decoder-first-pipeline-num-layers 6 --num-virtual-stages-per-pipeline-rank 4", "with 4 chunks a rank"}})
    EXPECT_NE(complaint_of(script(flags, 30)).find(accepted), std::string::npos) << complaint_of(script(flags, 30));
  // Trainers refuse what is not equal without such flags.
  const LaunchScript uneven = read_launch_script(script("", 30), "run.sh");
  EXPECT_NE(uneven.notes.back().find("30 layers are no multiple of 4 stages"), std::string::npos);
  // A plan of other stages does without them.
  for (const char* flags : {"--decoder-first-pipeline-num-layers 8", "--num-layer-list 8,8,8,8",
                            "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 5"}) {
    const std::string text = script(flags, 32);
    const LaunchScript s = read_launch_script(text, "run.sh");
    Job job = s.launch.job;
    job.mesh.pp = 2, job.mesh.dp = 4;
    const std::string out = rewritten(text, "run.sh", {}, s, launch_of(job));
    EXPECT_EQ(read_launch_script(out, "run.sh").launch.layout, "") << out;
  }
}

}  // namespace
}  // namespace heddle::advisor
