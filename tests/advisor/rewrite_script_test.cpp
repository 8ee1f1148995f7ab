// A user's script written back with another plan: what stays, what goes, what comes, and what is refused.
#include "advisor/script/rewrite_script.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "advisor/advice/targets.h"
#include "advisor/script/emit.h"
#include "heddle/base/error.h"

namespace heddle::advisor {
namespace {

std::string example() {
  std::ifstream file(HEDDLE_SOURCE_DIR "/examples/launch/qwen3_30b.sh");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_GT(text.str().size(), 1000u);
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool has_line(const std::string& text, std::string_view part) {
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) return true;
  return false;
}

// With four ranks to a pipeline and nothing computed again.
Launch other(const LaunchScript& script) {
  Job job = script.launch.job;
  job.mesh.pp = 4, job.mesh.dp = 4;
  job.recompute = {};
  job.microbatch = 2;
  return launch_of(job);
}

TEST(RewriteScript, KeepsTheUsersLines) {
  const std::string text = example();
  const LaunchScript script = read_launch_script(text, "run.sh");
  const std::string out = rewritten(text, "run.sh", {}, script, other(script));
  // What the plan doesn't have otherwise stands as it did, byte for byte.
  for (const char* kept :
       {"DATA=/data/corpus_text_document      # what", "--lr 3e-4 --min-lr 3e-5", "--nnodes $NNODES",
        "  --tensor-model-parallel-size $TP --sequence-parallel", "--data-path $DATA --split 99,1,0",
        "--save $CHECKPOINTS --save-interval 500", "2>&1 | tee log.txt"})
    EXPECT_TRUE(has_line(out, kept)) << kept << "\n" << out;
  EXPECT_FALSE(has_line(out, "--recompute"));
  EXPECT_FALSE(has_line(out, "--pipeline-model-parallel-size $PP"));
  EXPECT_TRUE(has_line(out, "HEDDLE_ARGS=("));
  EXPECT_TRUE(has_line(out, "  --pipeline-model-parallel-size 4"));
  EXPECT_TRUE(has_line(out, "--log-interval 1 \"${HEDDLE_ARGS[@]}\" 2>&1 | tee log.txt"));
  const LaunchScript again = read_launch_script(out, "better.sh");
  EXPECT_EQ(again.launch.job.mesh.pp, 4);
  EXPECT_EQ(again.launch.job.microbatch, 2);
  EXPECT_EQ(again.launch.job.global_batch, 256);
  EXPECT_EQ(again.others.unknown, std::vector<std::string>{});
  for (const std::string& line : lines_of(out)) EXPECT_FALSE(line.ends_with(' ')) << line;
}

TEST(RewriteScript, LeavesAScriptThatSaysThePlan) {
  const std::string text = example();
  const LaunchScript script = read_launch_script(text, "run.sh");
  EXPECT_EQ(rewritten(text, "run.sh", {}, script, script.launch), text);
}

constexpr const char* kString = R"(ARGS="
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 \
    --tensor-model-parallel-size=2 --recompute_granularity full --recompute-method uniform \
    --recompute-num-layers 1 \
    --micro-batch-size 1 --global-batch-size 64 --bf16"
torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS --lr 1e-4
echo done
)";

TEST(RewriteScript, ChangesStringsAndOtherSpellings) {
  const LaunchScript script = read_launch_script(kString, "run.sh");
  Job job = script.launch.job;
  job.recompute = {};
  job.mesh.tp = 4, job.mesh.dp = 2;
  const std::string out = rewritten(kString, "run.sh", {}, script, launch_of(job));
  EXPECT_FALSE(has_line(out, "recompute"));
  EXPECT_FALSE(has_line(out, "size=2"));
  EXPECT_TRUE(has_line(out, "--bf16\""));
  EXPECT_TRUE(has_line(out, "--lr 1e-4 \"${HEDDLE_ARGS[@]}\""));
  EXPECT_TRUE(has_line(out, "echo done"));
  EXPECT_EQ(read_launch_script(out, "x.sh").launch.job.mesh.tp, 4);
}

TEST(RewriteScript, RefusesWhatIsNotWrittenOut) {
  const std::string text =
      "R=recompute\ntorchrun --nproc_per_node 8 p.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
      "--seq-length 4096 --bf16 --micro-batch-size 1 --global-batch-size 64 --$R-activations\n";
  const LaunchScript script = read_launch_script(text, "run.sh");
  ASSERT_TRUE(script.launch.job.recompute.has(GroupName::attention));
  Job job = script.launch.job;
  job.recompute = {};
  try {
    rewritten(text, "run.sh", {}, script, launch_of(job));
    FAIL() << "a flag that is put together was taken out";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string_view(error.what()).find("run.sh:2: --recompute-activations has to be removed"),
              std::string_view::npos)
        << error.what();
  }
}

constexpr const char* kTwice = R"(NPUS_PER_NODE=16
ARGS="
    --num-layers 8 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --short-seq-prob 0.1 \
    --num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 1024 \
    --moe-grouped-gemm --moe-permutation-async-comm --moe-token-dispatcher-type alltoall_seq \
    --expert-model-parallel-size 2 --tensor-model-parallel-size 4 --sequence-parallel \
    --tp-2d --tp-x 2 --tp-y 2 \
    --micro-batch-size 1 --global-batch-size 64 --bf16"
torchrun --nproc_per_node $NPUS_PER_NODE pretrain_gpt.py $ARGS --save here
torchrun --nproc_per_node $NPUS_PER_NODE pretrain_gpt.py $ARGS --load here
)";

LaunchScript planned_twice(std::string& out) {
  const LaunchScript script = read_launch_script(kTwice, "run.sh");
  EXPECT_EQ(script.dialect, Dialect::mindspeed);
  Job job = script.launch.job;
  job.mesh.tp = 2, job.mesh.dp = 8, job.mesh.ep = 4;
  job.exchange.topology = ir::Topology::plain;
  out = rewritten(kTwice, "run.sh", {}, script, launch_of(job));
  return read_launch_script(out, "x.sh");
}

TEST(RewriteScript, KeepsAFlagThatAChangedOneAsksFor) {
  std::string out;
  planned_twice(out);
  EXPECT_TRUE(has_line(out, "    --moe-grouped-gemm")) << out;
}

TEST(RewriteScript, DropsWhatLeansOnAChangedFlag) {
  std::string out;
  const LaunchScript again = planned_twice(out);
  EXPECT_EQ(again.launch.job.mesh.tp, 2);
  EXPECT_FALSE(has_line(out, "--tp-")) << out;
  EXPECT_FALSE(has_line(out, "alltoall_seq")) << out;
  EXPECT_TRUE(has_line(out, "  --moe-token-dispatcher-type alltoall")) << out;
  EXPECT_TRUE(has_line(out, "--micro-batch-size 1 --global-batch-size 64"));
}

TEST(RewriteScript, EveryCommandGetsThePlan) {
  std::string out;
  planned_twice(out);
  EXPECT_TRUE(has_line(out, "--save here \"${HEDDLE_ARGS[@]}\"")) << out;
  EXPECT_TRUE(has_line(out, "--load here \"${HEDDLE_ARGS[@]}\"")) << out;
}

TEST(RewriteScript, TheNumberOfARedirectionIsNoWord) {
  const LaunchScript script = read_launch_script(
      "torchrun --nproc_per_node 8 p.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length "
      "4096 "
      "--bf16 --log-interval 1 2>&1\n",
      "run.sh");
  EXPECT_EQ(script.flags.at("--log-interval"), std::vector<std::string>{"1"});
}

}  // namespace
}  // namespace heddle::advisor
