#include "heddle/search/launch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <random>

#include "advisor/advice/targets.h"
#include "advisor/script/emit.h"
#include "advisor/script/launch_script.h"
#include "heddle/base/error.h"
#include "heddle/plan/layout.h"
#include "tests/advisor/drawn_job.h"
#include "tests/support/published_job.h"

namespace heddle::advisor {
namespace {

using search::job_of;

Job deepseek_launch() { return job_of("DeepSeek-V3", "H800", {.dp = 128, .pp = 16, .ep = 64}, 1, 15360, 2); }

ScriptContext context_of(const Job& j) {
  ScriptContext c;
  c.device = j.device;
  c.imbalance = j.imbalance;
  return c;
}

// What a refusal must say, "" when it isn't there.
std::string refusal(const Job& j, const char* target, std::string_view part) {
  for (const std::string& r : refusals_of(launch_of(j), target))
    if (r.find(part) != std::string::npos) return r;
  return "";
}

RC_GTEST_PROP(Launch, ScriptsReadBackTheSame, (uint32_t seed)) {
  std::mt19937 rng(seed);
  int said = 0;
  for (int i = 0; i < 40; ++i) {
    const Job job = drawn_job(rng);
    const Launch launch = launch_of(job);
    for (const auto& [target, dialect] :
         {std::pair("megatron", Dialect::megatron), std::pair("mindspeed", Dialect::mindspeed)}) {
      if (!refusals_of(launch, target).empty()) continue;
      ++said;
      const LaunchScript read = read_launch_script(emit(launch, dialect), "script.sh", context_of(job));
      RC_ASSERT(read.others.unknown == std::vector<std::string>{});
      RC_ASSERT(read.others.sizes == std::vector<std::string>{});
      RC_ASSERT(read.dialect == dialect);
      Launch back = normalized(read.launch), sent = normalized(launch);
      back.job.shape.name = sent.job.shape.name;
      RC_ASSERT(back.schedule == sent.schedule);
      RC_ASSERT(back.layout == sent.layout);
      RC_ASSERT(back.job.shape == sent.job.shape);
      RC_ASSERT(back.job.mesh == sent.job.mesh);
      RC_ASSERT(back.job.software == sent.job.software);
      RC_ASSERT(back.job.recompute == sent.job.recompute);
      RC_ASSERT(back == sent);
    }
  }
  RC_CLASSIFY(said > 0);
}

RC_GTEST_PROP(Launch, NormalFormsAreEstimatedTheSame, (uint32_t seed)) {
  std::mt19937 rng(seed);
  for (int i = 0; i < 40; ++i) {
    const Job job = drawn_job(rng);
    const Estimate given = estimate(job), normal = estimate(normalized(launch_of(job)).job);
    RC_ASSERT(given.reason == normal.reason);
    if (!given.reason.empty()) continue;
    RC_ASSERT(given.step_s == normal.step_s);
    RC_ASSERT(given.peak_bytes == normal.peak_bytes);
    RC_ASSERT(given.model_flops_utilization == normal.model_flops_utilization);
  }
}

TEST(Launch, PublishedJobsHaveScripts) {
  Job d = deepseek_launch();
  for (const Job& j : {d, job_of("Llama-3.1-405B", "H100", {.tp = 8, .cp = 2, .dp = 8, .pp = 8}, 1, 512, 2),
                       job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 1, 2048)}) {
    const std::string text = emit(launch_of(j), Dialect::megatron);
    const LaunchScript read = read_launch_script(text, "x.sh", context_of(j));
    EXPECT_EQ(read.launch.job.shape.name, j.shape.name);
    EXPECT_EQ(estimate(read.launch.job).step_s, estimate(j).step_s);
  }
  // 61 layers on 16 ranks of two chunks: the last chunk, beside the head, is lighter; the string holds all layers.
  const Launch launch = launch_of(d);
  int layers = 0;
  for (const std::string& stage : plan::letters_of_layout(launch.layout, 32))
    layers += static_cast<int>(std::count(stage.begin(), stage.end(), 't'));
  EXPECT_EQ(layers, 61);
}

TEST(Launch, RefusesWhatTheTargetsCantDo) {
  Job dual = deepseek_launch();
  dual.chunks = 1;
  dual.pipeline = schedule::find_pipeline("dual_pipe_v");
  EXPECT_NE(refusal(dual, "megatron", "no pipeline schedule 'dual_pipe_v'"), "");
  EXPECT_NE(refusal(dual, "mindspeed", "2 x pp"), "");
  Job experts = deepseek_launch();
  experts.software.overlap_exchange = true;
  EXPECT_NE(refusal(experts, "megatron", "go together"), "");
  experts.pipeline = interleaved_fused();
  EXPECT_EQ(refusals_of(launch_of(experts), "megatron"), std::vector<std::string>{});
  experts.recompute.set(GroupName::moe);
  EXPECT_NE(refusal(experts, "megatron", "does not go with overlap"), "");
  Job flat = deepseek_launch();
  flat.software.overlap_exchange = true;
  flat.chunks = 1;
  EXPECT_NE(refusal(flat, "megatron", "two chunks"), "");
  Job offload = deepseek_launch();
  offload.software.offload_activations = true;
  EXPECT_NE(refusal(offload, "megatron", "without pipeline"), "");
  Job depths = job_of("GLM-4.5-Air", "Ascend-910B", {.cp = 2, .dp = 16, .pp = 4, .ep = 8}, 1, 1024);
  depths.with_mtp = true;
  EXPECT_NE(refusal(depths, "mindspeed", "multi-token prediction beside context"), "");
  EXPECT_EQ(refusal(depths, "megatron", "multi-token prediction beside context"), "");
  depths.with_mtp = false;
  EXPECT_EQ(refusal(depths, "mindspeed", "multi-token prediction beside context"), "");
  Job chunks = experts;
  chunks.recompute = {};
  Launch empty = launch_of(chunks);
  const auto every_chunk = [&] {
    const std::vector<std::string> no = refusals_of(empty, "mindspeed");
    return std::count(no.begin(), no.end(), "overlap of the experts' exchange wants layers in every chunk");
  };
  empty.layout = layout_text(chunks, std::vector<int>(32, 2));
  EXPECT_EQ(every_chunk(), 0);
  std::vector<int> layers(32, 2);
  layers.back() = 0;
  empty.layout = layout_text(chunks, layers);
  EXPECT_EQ(every_chunk(), 1);
  Job alibi = job_of("MPT-7B", "H100", {.dp = 8}, 1, 8);
  EXPECT_NE(refusal(alibi, "megatron", "ALiBi"), "");
  EXPECT_THROW(emit(launch_of(alibi), Dialect::megatron), ConfigError);
  EXPECT_THROW(refusals_of(launch_of(alibi), "deepspeed"), ConfigError);
}

std::string launch_script(const char* name) {
  std::ifstream file(std::string(HEDDLE_SOURCE_DIR "/tests/fuzz/seeds/") + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Arrays, defaults, arithmetic, continuations and comments as launch scripts use them.
const std::string kArrays = launch_script("arrays.sh");

TEST(LaunchScript, ReadsArraysDefaultsAndArithmetic) {
  ScriptContext context;
  context.device = *cost::accelerator_named("H100");
  const LaunchScript s = read_launch_script(kArrays, "run.sh", context);
  const Job& j = s.launch.job;
  EXPECT_EQ(s.dialect, Dialect::megatron);
  EXPECT_EQ(j.shape.name, "Qwen3-235B-A22B");
  EXPECT_EQ(j.mesh, (plan::Degrees{.tp = 2, .dp = 16, .pp = 8, .ep = 32}));
  EXPECT_EQ(j.global_batch, 2048);
  EXPECT_EQ(j.microbatch, 1);
  EXPECT_TRUE(j.software.sequence_parallel);
  EXPECT_EQ(s.others.unknown, std::vector<std::string>{"--moe-brand-new-thing"});
  EXPECT_EQ(s.launch.layout, launch_of(j).layout);
  // EXTRA decides a branch; the date decides nothing.
  bool extra = false, output = false;
  for (const std::string& n : s.notes)
    extra |= n.find("taken as empty: EXTRA") != std::string::npos, output |= n.find("date") != std::string::npos;
  EXPECT_TRUE(extra);
  EXPECT_FALSE(output);
  context.variables = {{"NUM_NODES", "64"}};
  EXPECT_EQ(read_launch_script(kArrays, "run.sh", context).launch.job.mesh.ranks(), 512);
}

// The other style: all arguments in strings, MindSpeed's own words.
const std::string kStrings = launch_script("strings.sh");

TEST(LaunchScript, ReadsMindSpeedStrings) {
  const LaunchScript s = read_launch_script(kStrings, "run.sh");
  EXPECT_EQ(s.dialect, Dialect::mindspeed);
  EXPECT_EQ(s.launch.job.device.name, "Ascend-910B");
  EXPECT_EQ(s.launch.schedule, "dual_pipe_v");
  EXPECT_EQ(s.launch.job.mesh, (plan::Degrees{.dp = 32, .pp = 4, .ep = 32}));
  EXPECT_TRUE(s.launch.job.software.overlap_exchange);
  EXPECT_TRUE(s.launch.job.software.fused_attention);
  EXPECT_TRUE(s.launch.job.recompute.has(GroupName::norm));
  EXPECT_EQ(s.launch.job.software.state_bytes, 10);
  EXPECT_EQ(s.launch.job.shape.shared_width(), 2 * 1408);
  EXPECT_EQ(s.launch.job.shape.first_k_dense_replace, 1);
  EXPECT_TRUE(s.others.unknown.empty()) << s.others.unknown.front();
}

// MindSpeed's window of context ranks is the inner of two rings, read and written; Megatron-LM has none.
TEST(LaunchScript, ContextInDoubleRings) {
  const std::string run =
      "torchrun --nproc_per_node 8 --nnodes 2 p.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
      "--seq-length 32768 --bf16 --use-flash-attn --context-parallel-size 16 --context-parallel-algo ";
  const auto read = [&](const std::string& more) { return read_launch_script(run + more, "run.sh"); };
  const LaunchScript s = read("megatron_cp_algo --cp-window-size 8");
  EXPECT_EQ(s.launch.job.context, model::Context::double_ring);
  EXPECT_EQ(s.launch.job.context_inner, 8);
  EXPECT_TRUE(s.others.pace.empty()) << s.others.pace.front();
  const std::string again = emit(s.launch, Dialect::mindspeed);
  EXPECT_NE(again.find("--cp-window-size 8"), std::string::npos) << again;
  EXPECT_EQ(normalized(read_launch_script(again, "again.sh", context_of(s.launch.job)).launch),
            normalized(s.launch));
  const std::vector<std::string> no = refusals_of(s.launch, "megatron");
  ASSERT_FALSE(no.empty());
  EXPECT_NE(no.front().find("no double ring"), std::string::npos) << no.front();
  EXPECT_EQ(read("megatron_cp_algo --cp-window-size 1").launch.job.context, model::Context::ring);
  EXPECT_EQ(read("ulysses_cp_algo --cp-window-size 8").launch.job.context, model::Context::ulysses);
  for (const char* window : {"3", "16"}) {
    try {
      read(std::string("megatron_cp_algo --cp-window-size ") + window);
      FAIL() << window;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("accepted: a divisor of 16 below it"), std::string::npos)
          << error.what();
    }
  }
}

TEST(LaunchScript, RefusesWithThePlace) {
  const auto said = [](const std::string& text) {
    try {
      read_launch_script(text, "run.sh");
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string head = "torchrun --nproc_per_node 8 p.py --num-layers 32 --hidden-size 4096 ";
  EXPECT_NE(said("echo hello").find("launch script of Megatron-LM"), std::string::npos);
  EXPECT_NE(said(head).find("run.sh:1: --num-attention-heads is not given"), std::string::npos);
  EXPECT_NE(said(head + "--num-attention-heads many").find("accepted: a whole number"), std::string::npos);
  EXPECT_NE(said("A=\"open").find("run.sh:1: a quote is opened"), std::string::npos);
  const std::string heads = head + "--seq-length 4096 --num-attention-heads ";
  EXPECT_NE(said(heads + "$((1/0))").find("no arithmetic"), std::string::npos);
  EXPECT_NE(said("A=$((9223372036854775807+1))\n" + heads + "$A").find("line 1: $((9223372036854775807+1)) is no"),
            std::string::npos);
  EXPECT_NE(said(heads + "$HEADS").find("--num-attention-heads is not known: line 1: HEADS is not set"),
            std::string::npos);
  EXPECT_NE(said(heads + "--bf16").find("--num-attention-heads is given without a value"), std::string::npos);
  EXPECT_NE(said(heads + "32 --hybrid-override-pattern M-M*").find("a model of another kind"), std::string::npos);
  EXPECT_NE(said("\n\nA=(a b").find("run.sh:3: '(' is never closed"), std::string::npos);
  const std::string rest = "--num-attention-heads 32 --seq-length 4096 --bf16 ";
  EXPECT_NE(said(head + rest + "--tensor-model-parallel-size 3").find("no multiple of tp x pp x cp"),
            std::string::npos);
  EXPECT_NE(said("torchrun p.py --num-layers 32 --hidden-size 4096 " + rest).find("give --devices"),
            std::string::npos);
  // Each line doubles a variable; without a bound a terabyte.
  std::string doubling = "A=xxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  EXPECT_NE(said(doubling).find("expands to more than"), std::string::npos);
  EXPECT_NE(said(std::string(200, '(') + "A=${B:-").size(), 0u);
  std::string nested = "x";
  for (int i = 0; i < 60; ++i) nested = "${V" + std::to_string(i) + ":-" + nested + "}";
  EXPECT_NE(said("A=" + nested).find("nested too deeply"), std::string::npos);
}

}  // namespace
}  // namespace heddle::advisor
