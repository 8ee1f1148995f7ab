// Launch scripts as other trainers' users write them: what is read of each form, and what is written back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "advisor/advice/better.h"
#include "advisor/advice/targets.h"
#include "advisor/answer/script_job.h"
#include "advisor/script/emit.h"
#include "advisor/script/flag_effects.h"
#include "advisor/script/launch_flags.h"
#include "advisor/script/launch_script.h"
#include "advisor/script/rewrite_script.h"
#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/search/explain.h"
#include "tests/support/scratch_folder.h"

namespace heddle::advisor {
namespace {

constexpr double kBillion = 1e9;

std::string refused(const std::string& text, const ScriptContext& context = {}) {
  try {
    read_launch_script(text, "run.sh", context);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::vector<std::string>& all, std::string_view part) {
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& each) { return each.find(part) != std::string::npos; });
}

double parameters(const LaunchScript& script) { return model::total_parameters(script.launch.job.shape); }

const std::string kDense =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu --vocab-size "
    "50304 "
    "--seq-length 4096 --micro-batch-size 1 --global-batch-size 128 --bf16 --position-embedding-type rope "
    "--normalization RMSNorm --disable-bias-linear ";
const std::string kMoe =
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 10240 --swiglu --seq-length "
    "4096 "
    "--micro-batch-size 1 --global-batch-size 8 --bf16 --vocab-size 102400 --disable-bias-linear --normalization "
    "RMSNorm --position-embedding-type rope --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 "
    "--untie-embeddings-and-output-weights --expert-model-parallel-size 8 --use-distributed-optimizer "
    "--sequence-parallel --attention-dropout 0 --hidden-dropout 0 --moe-grouped-gemm ";
const std::string kRun = "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py ";

TEST(Script, ABranchOnAKnownWordIsTaken) {
  const LaunchScript s = read_launch_script("DTYPE=\"fp8\"\nARGS=(" + kDense +
                                                ")\nif [[ \"$DTYPE\" == \"fp8\" ]]; then\n"
                                                "  ARGS+=(\"--fp8-format hybrid\" --fp8-recipe tensorwise)\nfi\n" +
                                                kRun + "${ARGS[@]}",
                                            "run.sh");
  EXPECT_EQ(s.launch.job.precision, cost::Precision::fp8);
}

TEST(Script, APortThatNothingNeedsStopsNothing) {
  const LaunchScript s = read_launch_script(
      "PORT=$((10000 + $SLURM_JOB_ID % 50000))\nTP=2\nSP=$(( ($TP > 1) ? 1 : 0 ))\nEXTRA=$(cat flags)\ntorchrun "
      "--nproc_per_node 8 --nnodes $SP --master_port $PORT pretrain_gpt.py --tensor-model-parallel-size $TP " +
          kDense + "$EXTRA",
      "run.sh");
  EXPECT_EQ(s.launch.job.mesh.tp, 2);
  EXPECT_TRUE(has(s.notes, "the command also gets arguments that are not known (line 4: the output of cat)"));
}

TEST(Script, SlurmAndStringsSayTheDevices) {
  const std::string sbatch =
      "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\noptions=\"" + kDense + "\"\n";
  EXPECT_EQ(read_launch_script(sbatch + "srun -l bash -c \"python pretrain_gpt.py ${options}\"", "run.sh")
                .launch.job.mesh.ranks(),
            32);
  EXPECT_EQ(
      read_launch_script(sbatch + "srun -N 2 python pretrain_gpt.py $options", "run.sh").launch.job.mesh.ranks(),
      16);
  EXPECT_EQ(read_launch_script("mpirun -np 16 python pretrain_gpt.py " + kDense, "run.sh").launch.job.mesh.ranks(),
            16);
  EXPECT_NE(
      refused("torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py " + kDense).find("NODES is not set"),
      std::string::npos);
}

TEST(Script, GivenVariablesWinOverAssignments) {
  const std::string text = "NNODES=1\n" + kRun.substr(0, kRun.find("--nnodes")) +
                           "--nnodes $NNODES pretrain_gpt.py " + kDense + "--tensor-model-parallel-size 2\n";
  ScriptContext context;
  context.variables = {{"NNODES", "4"}};
  const LaunchScript script = read_launch_script(text, "run.sh", context);
  EXPECT_EQ(script.launch.job.mesh.ranks(), 32);
  // What is written back says so too.
  Job job = script.launch.job;
  job.mesh.tp = 4, job.mesh.dp = 8;
  const std::string out = rewritten(text, "run.sh", context, script, launch_of(job));
  EXPECT_EQ(out.substr(0, 9), "NNODES=4\n");
  EXPECT_EQ(read_launch_script(out, "run.sh").launch.job.mesh.ranks(), 32);
  context.variables = {{"NNODE", "4"}};
  EXPECT_NE(refused(text, context).find("no such variable, did you mean 'NNODES'?"), std::string::npos)
      << refused(text, context);
}

// Whole scripts of the forms that are in use, each with what it starts in its first lines.
TEST(Script, FormsInUse) {
  const std::filesystem::path folder = HEDDLE_SOURCE_DIR "/tests/advisor/scripts";
  const auto text_of = [](const std::filesystem::path& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".sh") continue;
    ++scripts;
    const std::string text = text_of(entry.path());
    const size_t at = text.find("# expects: ") + 11;
    ASSERT_GE(at, size_t{11}) << entry.path();
    ScriptContext context;
    context.file = [&](const std::string& path) -> std::optional<std::string> {
      return std::filesystem::exists(folder / path) ? std::optional(text_of(folder / path)) : std::nullopt;
    };
    const LaunchScript s = read_launch_script(text, entry.path().string(), context);
    const Job& j = s.launch.job;
    EXPECT_EQ(fmt::format("{}: {}, {}", j.shape.name, layout_line(j), cost::name_of(j.precision)),
              text.substr(at, text.find('\n', at) - at))
        << entry.path();
    EXPECT_EQ(s.others.unknown, std::vector<std::string>{}) << entry.path();
  }
  EXPECT_GE(scripts, 6);
}

// --- what a model is

TEST(Script, LayersThatDoNothingAreNone) {
  const std::string text = "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py " +
                           std::string(
                               "--num-layers 16 --noop-layers 14,15 --hidden-size 2048 --num-attention-heads 16 "
                               "--ffn-hidden-size 8192 --swiglu --seq-length 2048 --micro-batch-size 1 "
                               "--global-batch-size 64 --tensor-model-parallel-size 2 "
                               "--pipeline-model-parallel-size 4 --bf16 --vocab-size 50304 "
                               "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear "
                               "--use-flash-attn --use-distributed-optimizer\n");
  const LaunchScript s = read_launch_script(text, "run.sh");
  EXPECT_EQ(s.dialect, Dialect::mindspeed);
  EXPECT_EQ(s.launch.job.shape.num_hidden_layers, 14);
  EXPECT_EQ(s.launch.noop, (std::vector<int>{14, 15}));
  EXPECT_EQ(s.launch.layout, layout_text(s.launch.job, {4, 4, 4, 2}));
  // On two ranks seven each need none of them; on eight the shorter stages have some.
  for (const int pp : {2, 8}) {
    Job job = s.launch.job;
    job.mesh.pp = pp, job.mesh.dp = 32 / pp / 2;
    const Launch plan = padded(launch_of(job));
    const std::string out = rewritten(text, "run.sh", {}, s, plan);
    const LaunchScript again = read_launch_script(out, "run.sh");
    EXPECT_EQ(again.launch.job.shape.num_hidden_layers, 14) << out;
    EXPECT_EQ(places_of(again.launch) % pp, 0);
    EXPECT_EQ(again.launch.layout, plan.layout);
    EXPECT_EQ(again.launch.noop.empty(), pp == 2) << out;
  }
  EXPECT_NE(refused(text.substr(0, text.size() - 1) + " --noop-layers 16").find("--noop-layers"),
            std::string::npos);
}

TEST(Script, NumbersAreAsPythonReadsThem) {
  const std::string more = "--num-layers 4 --train-samples 6_348_800 --lr-decay-samples +5_000 --lr 1_0e-5";
  EXPECT_EQ(refused(kRun + kMoe + more), "");
  EXPECT_EQ(read_launch_script(kRun + kMoe + "--num-layers 1_2", "run.sh").launch.job.shape.num_hidden_layers, 12);
  for (const char* wrong : {"_4", "4_", "1__2", "+-4", "+"})
    EXPECT_NE(refused(kRun + kMoe + "--num-layers " + wrong).find("accepted: a whole number"), std::string::npos);
}

TEST(Script, FlagsOfTheLauncherAreNotTheTrainers) {
  const std::string rest =
      "pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
      "--micro-batch-size 1 --bf16 --own-flag 1";
  const LaunchScript mpi = read_launch_script("mpirun --mca x y --bind-to none -n 16 python " + rest, "run.sh");
  EXPECT_EQ(mpi.others.unknown, std::vector<std::string>{"--own-flag"});
  EXPECT_EQ(mpi.launch.job.mesh.ranks(), 16);
  const LaunchScript deep = read_launch_script("deepspeed --num_gpus 4 --num_nodes 2 " + rest, "run.sh");
  EXPECT_EQ(deep.others.unknown, std::vector<std::string>{"--own-flag"});
  EXPECT_EQ(deep.launch.job.mesh.ranks(), 8);
}

TEST(Script, LaunchersSayTheDevicesInTheirOwnWords) {
  const std::string rest = " pretrain_gpt.py " + kDense;
  const auto devices = [&](const std::string& start) {
    return read_launch_script(start + rest, "run.sh").launch.job.mesh.ranks();
  };
  EXPECT_EQ(devices("srun -N2 -n16 python"), 16);
  EXPECT_EQ(devices("accelerate launch --num_processes 16"), 16);
  EXPECT_EQ(devices("export WORLD_SIZE=4 RANK=0\npython"), 4);
  for (const auto& [start, why] : {std::pair("torchrun --nproc_per_node=gpu", "--nproc-per-node gpu"),
                                   {"torchrun --nproc_per_node 8 --nnodes 1:4", "--nnodes 1:4"},
                                   {"torchrun --standalone", "give --devices"},
                                   {"WORLD_SIZE=$N\npython", "N is not set"},
                                   {"python", "give --devices"}})
    EXPECT_NE(refused(start + rest).find(why), std::string::npos) << refused(start + rest);
}

TEST(Script, FilesAreFoundInTheFoldersAbove) {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder.path() / "a/b");
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
  };
  write("top.sh", "LAYERS=6\n");
  write("a/middle.sh", "HIDDEN=640\n");
  write("a/b/run.sh",
        "source top.sh\nsource a/middle.sh\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS "
        "--hidden-size $HIDDEN --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 --bf16\n");
  const ScriptJob job = read_script_job({.path = (folder.path() / "a/b/run.sh").string()});
  EXPECT_EQ(job.script.launch.job.shape.num_hidden_layers, 6);
  EXPECT_EQ(job.script.launch.job.shape.hidden_size, 640);
}

TEST(Script, LeadingDenseLayersAreCountedInPlaces) {
  LaunchScript s =
      read_launch_script(kRun + kMoe + "--num-layers 27 --noop-layers 0,25,26 --first-k-dense-replace 4", "run.sh");
  EXPECT_EQ(s.launch.job.shape.num_hidden_layers, 24);
  EXPECT_EQ(s.launch.job.shape.first_k_dense_replace, 3);
  bool found = false;
  for (const Flag& f : flags_of(s.launch, Dialect::mindspeed)) {
    if (f.name != "--moe-layer-freq") continue;
    found = true;
    EXPECT_EQ(f.values, std::vector<std::string>{"([0]*4+[1]*23)"});
  }
  EXPECT_TRUE(found);
}

TEST(Script, LayersWithExpertsAreInAnyOrder) {
  const auto layers = [](const std::string& flags) {
    const LaunchScript s = read_launch_script(kRun + kMoe + flags, "run.sh");
    const model::Shape& shape = s.launch.job.shape;
    std::string letters;
    for (int64_t layer = 0; layer < shape.num_hidden_layers; ++layer)
      letters += shape.has_experts_behind(layer) ? 'E' : '-';
    // As it is written, it is read.
    const LaunchScript again = read_launch_script(
        emit(s.launch, s.launch.noop.empty() ? Dialect::megatron : Dialect::mindspeed), "run.sh");
    EXPECT_EQ(again.launch.job.shape, shape) << flags;
    return letters;
  };
  EXPECT_EQ(layers("--num-layers 8 --moe-layer-freq 2"), "E-E-E-E-");
  EXPECT_EQ(layers("--num-layers 8 --moe-layer-freq '([0]+[1]*3)*2'"), "-EEE-EEE");
  EXPECT_EQ(layers("--num-layers 8 --moe-layer-freq [1]*4+[0,0]+[1]*2"), "EEEE--EE");
  EXPECT_EQ(layers("--num-layers 8 --moe-layer-freq [0]*2+[1]*6"), "--EEEEEE");
  EXPECT_EQ(layers("--num-layers 8 --moe-layer-freq 1"), "EEEEEEEE");
  EXPECT_EQ(layers("--num-layers 8 --noop-layers 1,6 --moe-layer-freq [0,0,1,0,1,1,1,1]"), "-E-EEE");
  for (const char* wrong :
       {"[0]*3+[1]*3", "[1 if i else 0 for i in range(8)]", "((((((((((((((((((([1]*8", "[2]*8"})
    EXPECT_TRUE(
        has(read_launch_script(kRun + kMoe + "--num-layers 8 --moe-layer-freq '" + wrong + "'", "run.sh").notes,
            "taken as experts in all"))
        << wrong;
}

TEST(Script, WindowsSkipLayersAsTheFlagsSay) {
  const auto interval = [](const std::string& flags) {
    const LaunchScript s = read_launch_script(kRun + kDense + "--window-size 127,0 " + flags, "run.sh");
    EXPECT_EQ(s.launch.job.shape.sliding_window, 128);
    const LaunchScript again = read_launch_script(emit(s.launch, Dialect::megatron), "run.sh");
    EXPECT_EQ(again.launch.job.shape, s.launch.job.shape) << flags;
    return s.launch.job.shape.full_attention_interval;
  };
  EXPECT_EQ(interval(""), 0);
  EXPECT_EQ(interval("--window-attn-skip-freq 6"), 6);
  EXPECT_EQ(interval("--window-attn-skip-freq '([1]*3+[0])*8'"), 4);
  EXPECT_EQ(interval("--window-attn-skip-freq [1]*32"), 0);
  EXPECT_TRUE(
      has(read_launch_script(kRun + kDense + "--window-size 127,0 --window-attn-skip-freq [0]*8+[1]*24", "x").notes,
          "taken as a window in all layers"));
}

TEST(Script, GroupsOfQueriesWantTheirSwitch) {
  const std::string groups = kRun + kDense + "--num-query-groups 8 ";
  EXPECT_EQ(read_launch_script(groups + "--group-query-attention", "run.sh").launch.job.shape.num_key_value_heads,
            8);
  const LaunchScript without = read_launch_script(groups, "run.sh");
  EXPECT_EQ(without.launch.job.shape.num_key_value_heads, 32);
  EXPECT_TRUE(has(without.notes, "--num-query-groups without --group-query-attention"));
}

TEST(Script, QuickGegluIsGated) {
  const LaunchScript s = read_launch_script(
      kRun +
          "--num-layers 24 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 --group-query-attention "
          "--num-query-groups 8 --ffn-hidden-size 2880 --quick-geglu --disable-bias-linear --seq-length 4096 "
          "--micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 8 --bf16 --vocab-size 201088 "
          "--position-embedding-type rope --normalization RMSNorm --untie-embeddings-and-output-weights "
          "--num-experts 32 --moe-router-topk 4 --moe-ffn-hidden-size 2880 --moe-grouped-gemm --window-size 127,0 "
          "--window-attn-skip-freq 2",
      "run.sh");
  EXPECT_TRUE(s.launch.job.shape.has_gated_mlp());
  EXPECT_NEAR(parameters(s) / kBillion, 20.9, 0.1);
  EXPECT_EQ(s.launch.job.shape.sliding_window, 128);  // keys to the left, and the query's own
}

TEST(Script, GivenUpNamesAreReadLikeThoseThatFollowed) {
  const std::string now =
      "--moe-router-num-groups 8 --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 "
      "--multi-latent-attention --qk-layernorm --qk-head-dim 96 --qk-pos-emb-head-dim 32";
  const std::string then =
      "--n-group 8 --topk-group 4 --routed-scaling-factor 2.5 --multi-head-latent-attention --qk-layernorm "
      "--qk-nope-head-dim 96 --qk-rope-head-dim 32";
  std::string moe = kMoe;
  const std::string width = "--moe-ffn-hidden-size";
  moe.replace(moe.find(width), width.size(), "--moe-intermediate-size");
  const LaunchScript a = read_launch_script(kRun + kMoe + now, "run.sh"),
                     b = read_launch_script(kRun + moe + then, "run.sh");
  EXPECT_TRUE(a.launch.job.shape == b.launch.job.shape);
  EXPECT_EQ(a.launch.job.shape.moe_intermediate_size, 1408);
  EXPECT_EQ(a.launch.job.shape.qk_nope_head_dim, 96);
  EXPECT_EQ(a.constants.settings, b.constants.settings);
  EXPECT_TRUE(b.others.unknown.empty() && b.others.sizes.empty())
      << fmt::format("{}", fmt::join(b.others.sizes, " "));
  // The present spelling goes before the other one.
  EXPECT_EQ(read_launch_script(kRun + kMoe + "--moe-intermediate-size 7", "run.sh")
                .launch.job.shape.moe_intermediate_size,
            1408);
  const LaunchScript old = read_launch_script(
      kRun + kDense + "--activations-checkpoint-method block --activations-checkpoint-num-layers 8", "run.sh");
  EXPECT_TRUE(old.launch.job.recompute.has(GroupName::layer));
  EXPECT_DOUBLE_EQ(old.launch.job.recompute.every, 0.25);
  // A plan takes the old words' place.
  Job job = old.launch.job;
  job.recompute = {};
  const std::string out =
      rewritten(kRun + kDense + "--checkpoint-activations\n", "run.sh", {},
                read_launch_script(kRun + kDense + "--checkpoint-activations\n", "run.sh"), launch_of(job));
  EXPECT_EQ(out.find("--checkpoint-activations"), std::string::npos) << out;
}

TEST(Script, OneHeadOfKeysForAllQueries) {
  const model::Shape shape =
      read_launch_script(kRun + kDense + "--attention-head-type multiquery", "run.sh").launch.job.shape;
  EXPECT_EQ(shape.num_key_value_heads, 1);
  EXPECT_EQ(read_launch_script(kRun + kDense + "--attention-head-type multihead", "run.sh")
                .launch.job.shape.num_key_value_heads,
            32);
}

TEST(Script, ManyExpertsAsWideAsTheFeedForwardAreRemarked) {
  std::string moe = kMoe;
  const std::string width = "--moe-ffn-hidden-size 1408";
  moe.erase(moe.find(width), width.size());
  EXPECT_TRUE(
      has(read_launch_script(kRun + moe, "run.sh").notes, "each of 64 experts has --ffn-hidden-size, 10240"));
  EXPECT_FALSE(has(read_launch_script(kRun + kMoe, "run.sh").notes, "--moe-ffn-hidden-size"));
}

TEST(Script, AdaptersFreezeTheWeightsBelowThem) {
  const std::string text = "# MindSpeed-LLM\n" + kRun + kDense +
                           "--use-flash-attn --lora-r 8 --lora-alpha 16 --lora-fusion --lora-target-modules "
                           "linear_qkv linear_proj\n",
                    full = text.substr(0, text.find("--lora-r"));
  const LaunchScript script = read_launch_script(text, "run.sh"), whole = read_launch_script(full, "run.sh");
  EXPECT_TRUE(script.launch.job.frozen_base);
  EXPECT_FALSE(whole.launch.job.frozen_base);
  EXPECT_TRUE(script.others.sizes.empty());
  const search::Estimate with = search::estimate(script.launch.job), without = search::estimate(whole.launch.job);
  EXPECT_LT(with.peak_bytes, 0.7 * without.peak_bytes);
  EXPECT_LT(with.step_s, without.step_s);
  // The adapters' own flags stay where a plan changes others.
  Job job = script.launch.job;
  job.mesh.tp = 2, job.mesh.dp = 4;
  const std::string out = rewritten(text, "run.sh", {}, script, launch_of(job));
  EXPECT_NE(out.find("--lora-r 8 --lora-alpha 16"), std::string::npos) << out;
  EXPECT_TRUE(read_launch_script(out, "run.sh").launch.job.frozen_base);
  EXPECT_FALSE(refusals_of(launch_of(job), "megatron").empty());
}

TEST(Script, OtherTrainersAndKindsAreRefusedBeforeWhatTheyLack) {
  const auto says = [](const std::string& text, std::string_view part) {
    EXPECT_NE(refused(text).find(part), std::string::npos) << refused(text);
  };
  says("deepspeed pretrain_gpt.py " + kDense + "--deepspeed --zero-stage 3",
       "run.sh:1: --deepspeed makes it a job of");
  says(kRun + "--encoder-num-layers 12 --hidden-size 768 --num-attention-heads 12", "--encoder-num-layers makes");
  says(kRun + kDense + "--use-tiling --max-num-tiles 6", "makes a model of another kind");
  says(kRun + kDense + "--pipeline-model-parallel-size 16",
       "--pipeline-model-parallel-size 16, accepted: up to the 8 devices (--devices)");
  says("if [ $1 = here ]; then\n  N=8\nelse\n  N=$K\nfi\ntorchrun --nproc_per_node $N pretrain_gpt.py " + kDense,
       "its arguments 1 are not given (--set 1=VALUE)");
  says("MODEL_ARGS=(" + kDense + ")\n", "(they are set for another script to start)");
}

TEST(Script, AnUnnamedFeedForwardWidthIsTheTrainersOwn) {
  const std::string rest =
      "--num-layers 4 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --seq-length 512 "
      "--micro-batch-size 1 --global-batch-size 8 --bf16 --position-embedding-type rope ";
  EXPECT_EQ(read_launch_script(kRun + rest, "run.sh").launch.job.shape.intermediate_size, 16384);
  EXPECT_EQ(read_launch_script(kRun + rest + "--swiglu", "run.sh").launch.job.shape.intermediate_size, 10880);
}

TEST(Script, AModelIsNamedByAllThatTellsItApart) {
  const std::string eight = kRun +
                            "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
                            "--num-query-groups 8 --ffn-hidden-size 14336 --swiglu --seq-length 8192 "
                            "--micro-batch-size 1 --global-batch-size 128 --bf16 --position-embedding-type rope "
                            "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights ";
  const auto name = [&](const std::string& more) {
    return read_launch_script(eight + more, "run.sh").launch.job.shape.name;
  };
  EXPECT_EQ(name("--tokenizer-model meta-llama/Meta-Llama-3-8B"), "Llama-3-8B");
  EXPECT_EQ(name("--tokenizer-model /models/mistral-7b/tokenizer.model"), "Mistral-7B");
  EXPECT_EQ(name("--rotary-base 500000"), "Llama-3-8B");
  EXPECT_EQ(name("--rotary-base 10000"), "Mistral-7B");
  EXPECT_EQ(name("--vocab-size 32000"), "Mistral-7B");
  EXPECT_EQ(name("--vocab-size 128256 --rotary-base 10000"), "Llama-3-8B");
  const LaunchScript open = read_launch_script(eight, "run.sh");
  EXPECT_TRUE(has(open.notes, "of the same sizes: Mistral-7B (32000)")) << open.notes.back();
  // Other widths are other models, with a vocabulary of their own or none known.
  EXPECT_EQ(read_launch_script(kRun + kDense, "run.sh").launch.job.shape.name, "");
}

TEST(Script, NoFlagOfTheTrainersIsUnknown) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/advisor/trainer_arguments.txt");
  int flags = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string trainer, flag;
    words >> trainer >> flag;
    if ((trainer != "megatron" && trainer != "mindspeed") || !flag.starts_with("--")) continue;
    ++flags;
    std::map<std::string, std::vector<std::string>> given{{"--num-layers", {"4"}},
                                                          {"--hidden-size", {"64"}},
                                                          {"--num-attention-heads", {"4"}},
                                                          {"--seq-length", {"64"}}};
    given[flag];
    const GivenFlags asked(given, "");
    Launch launch;
    std::vector<std::string> notes;
    try {
      read_flags(asked, trainer == "megatron" ? Dialect::megatron : Dialect::mindspeed, 8, launch, notes);
    } catch (const ConfigError&) {  // a row asked for its value
      continue;
    }
    const std::vector<std::string> unread = asked.unread();
    if (std::find(unread.begin(), unread.end(), flag) != unread.end()) {
      EXPECT_NE(effect_of(flag), FlagEffect::unknown) << flag;
    }
  }
  EXPECT_GT(flags, 150);
}

TEST(Script, EveryFlagHasAnEffect) {
  EXPECT_EQ(effect_of("--lr-decay-style"), FlagEffect::none);
  EXPECT_EQ(effect_of("--optimizer-cuda-graph"), FlagEffect::pace);
  EXPECT_EQ(effect_of("--rotary-base"), FlagEffect::values);
  EXPECT_EQ(effect_of("--attention-output-gate"), FlagEffect::sizes);
  EXPECT_EQ(effect_of("--hybrid-layer-pattern"), FlagEffect::other_model);
  EXPECT_EQ(effect_of("--xielu"), FlagEffect::unknown);
  EXPECT_EQ(effect_of("--moe-brand-new"), FlagEffect::unknown);
  const LaunchScript s = read_launch_script(
      kRun + kDense + "--xielu --attention-output-gate --use-ring-exchange-p2p --lr 1e-4 --log-interval 1",
      "run.sh");
  using Names = std::vector<std::string>;
  EXPECT_EQ(s.others.unknown, Names{"--xielu"});
  EXPECT_EQ(s.others.sizes, Names{"--attention-output-gate"});
  EXPECT_EQ(s.others.pace, Names{"--use-ring-exchange-p2p"});
}

// --- what overlaps and what lies elsewhere

double step_of(const std::string& more, const std::string& base = kMoe) {
  LaunchScript s = read_launch_script("torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py " + base +
                                          "--expert-model-parallel-size 32 "
                                          "--global-batch-size 64 --moe-shared-expert-intermediate-size 2816 " +
                                          more,
                                      "run.sh");
  s.launch.job.device = *cost::accelerator_named("Ascend-910B");
  return estimate(s.launch.job).step_s;
}

TEST(Script, OverlapOfTrainersIsPriced) {
  const double plain = step_of("");
  EXPECT_LT(step_of("--moe-shared-expert-overlap"), plain);
  EXPECT_LT(step_of("--moe-alltoall-overlap-comm"), step_of("--moe-shared-expert-overlap"));
  EXPECT_EQ(step_of("--moe-permutation-async-comm"), plain);  // grouped products leave nothing of it
  EXPECT_LT(step_of("--overlap-grad-reduce"), plain);
  EXPECT_LT(step_of("--overlap-grad-reduce --overlap-param-gather"), step_of("--overlap-grad-reduce"));
  EXPECT_LT(step_of("--overlap-moe-expert-parallel-comm --delay-wgrad-compute"), plain);
  const std::string cut =
      "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 --expert-model-parallel-size 16 ";
  EXPECT_LT(step_of(cut + "--tp-comm-overlap"), step_of(cut));
}

TEST(Script, StatesOnTheHostArePriced) {
  const std::string run = "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py " + kMoe;
  const auto read = [&](const std::string& more) { return read_launch_script(run + more, "run.sh").launch.job; };
  const Estimate ascend = estimate(read("--use-flash-attn --use-fused-swiglu")),
                 swapped = estimate(read("--use-flash-attn --use-fused-swiglu --swap-optimizer")),
                 there = estimate(read("")), host = estimate(read("--optimizer-cpu-offload")),
                 half = estimate(read("--optimizer-cpu-offload --optimizer-offload-fraction 0.5"));
  EXPECT_LT(swapped.peak_bytes, ascend.peak_bytes);
  EXPECT_GT(swapped.host_bytes, 0);
  EXPECT_GT(swapped.time.optimizer, ascend.time.optimizer);
  EXPECT_LT(host.peak_bytes, half.peak_bytes);
  EXPECT_LT(half.peak_bytes, there.peak_bytes);
  const LaunchScript s = read_launch_script(run + "--swap-optimizer --use-flash-attn", "run.sh");
  EXPECT_EQ(s.dialect, Dialect::mindspeed);
  // What is written of it reads back the same.
  for (const char* more : {"--swap-optimizer-times 4", "--optimizer-cpu-offload --optimizer-offload-fraction 0.3",
                           "--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d"}) {
    const bool swap = std::string(more).starts_with("--swap");
    const LaunchScript there = read_launch_script(
        run + more + (swap ? " --swap-optimizer --use-flash-attn --moe-token-dispatcher-type alltoall" : ""),
        "run.sh");
    ASSERT_EQ(refusals_of(there.launch, swap ? "mindspeed" : "megatron"), std::vector<std::string>{}) << more;
    ScriptContext context;
    context.device = there.launch.job.device;
    EXPECT_EQ(normalized(read_launch_script(emit(there.launch, there.dialect), "again.sh", context).launch),
              normalized(there.launch))
        << more;
  }
  // A plan beside it keeps them there, where the same trainer runs it.
  EXPECT_EQ(query_beside(s.launch, "mindspeed", 1e11).space.job.residency, s.launch.job.residency);
  EXPECT_EQ(query_beside(s.launch, "megatron", 1e11).space.job.residency, PricedResidency{});
}

// --- what is written back

TEST(Script, DefaultsThatFollowOtherFlagsAreSaid) {
  // The experts' tensor degree follows the tensor degree where it is not named.
  const std::string text =
      kRun + kMoe + "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n";
  const LaunchScript script = read_launch_script(text, "run.sh");
  Job job = script.launch.job;
  job.mesh.tp = 2, job.mesh.dp = 4;
  const std::string out = rewritten(text, "run.sh", {}, script, launch_of(job));
  EXPECT_NE(out.find("--expert-tensor-parallel-size 1"), std::string::npos) << out;
  const plan::Degrees& again = read_launch_script(out, "run.sh").launch.job.mesh;
  EXPECT_EQ(again.tp, 2);
  EXPECT_EQ(again.etp, 1);
  // Nor does a script without tensor ranks set what these want.
  EXPECT_NE(out.find("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"), std::string::npos) << out;
}

TEST(Script, EveryPlanNearbyIsWritten) {
  // Degrees, microbatches and recomputation around a script that leaves most flags to their defaults.
  const std::string text =
      "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py " + kMoe + "--global-batch-size 64\n";
  const LaunchScript script = read_launch_script(text, "run.sh");
  int written = 0;
  using plan::Degrees;
  for (const auto& [mesh, chunks] : {std::pair(Degrees{.tp = 2, .dp = 8, .ep = 8}, 1),
                                     {Degrees{.tp = 2, .dp = 8, .ep = 4, .etp = 2}, 1},
                                     {Degrees{.dp = 8, .pp = 2, .ep = 8}, 1},
                                     {Degrees{.dp = 4, .pp = 4, .ep = 4}, 2},
                                     {Degrees{.tp = 4, .dp = 4, .ep = 16}, 1},
                                     {Degrees{.cp = 2, .dp = 8, .ep = 8}, 1},
                                     {Degrees{.tp = 2, .dp = 2, .pp = 4, .ep = 4}, 3},
                                     {Degrees{.dp = 2, .pp = 8, .ep = 2}, 1}})
    for (const bool again : {false, true}) {
      Job job = script.launch.job;
      job.mesh = mesh;
      job.chunks = chunks;
      job.pipeline = nullptr;
      job.recompute = {};
      job.recompute.set(GroupName::layer, again);
      job.microbatch = again ? 2 : 1;
      const Launch plan = launch_of(job);
      if (!refusals_of(plan, "megatron").empty()) continue;
      ++written;
      const std::string out = rewritten(text, "run.sh", {}, script, plan);
      const Job read = read_launch_script(out, "run.sh").launch.job;
      EXPECT_EQ(read.mesh, mesh) << out;
      EXPECT_EQ(read.chunks, chunks) << out;
    }
  EXPECT_GE(written, 12);
}

TEST(Script, EvaluatedCommandsAreRewritten) {
  const std::string text =
      "OPTIONS=\"" + kDense + "\"\nrun_cmd=\"" + kRun + "${OPTIONS}\"\necho ${run_cmd}\neval ${run_cmd}\n";
  const LaunchScript script = read_launch_script(text, "run.sh");
  Job job = script.launch.job;
  job.mesh.pp = 4, job.mesh.dp = 2;
  const Launch plan = launch_of(job, {9, 9, 9, 5});  // a layout of bars and brackets
  const std::string out = rewritten(text, "run.sh", {}, script, plan);
  EXPECT_NE(out.find("eval ${run_cmd} \"${HEDDLE_ARGS[@]@Q}\""), std::string::npos) << out;
  EXPECT_EQ(read_launch_script(out, "run.sh").launch.layout, plan.layout);
}

TEST(Script, CommandsInStringsAreRewritten) {
  const std::string start = "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=8\nO=\"" + kDense + "\"\n";
  for (const std::string& command :
       {std::string("srun -l \\\n  bash -c \"RANK=\\$SLURM_PROCID python pretrain_gpt.py ${O} \\\n\"\n"),
        "srun bash -c 'cd /x && python pretrain_gpt.py " + kDense + "'\n"}) {
    const std::string text = start + command;
    const LaunchScript script = read_launch_script(text, "run.sh");
    Job job = script.launch.job;
    job.mesh.pp = 4, job.mesh.dp = 2;
    const Launch plan = launch_of(job, {9, 9, 9, 5});
    const std::string out = rewritten(text, "run.sh", {}, script, plan);
    EXPECT_EQ(read_launch_script(out, "run.sh").launch.layout, plan.layout) << out;
    EXPECT_LT(out.find("HEDDLE_ARGS=\""), out.find("srun")) << out;
  }
  // More behind it in the string, or a file around it: nothing can be added.
  const std::string text = start + "srun bash -c \"python pretrain_gpt.py ${O} | tee log\"\n";
  const LaunchScript script = read_launch_script(text, "run.sh");
  Job job = script.launch.job;
  job.mesh.tp = 2, job.mesh.dp = 4;
  EXPECT_THROW(rewritten(text, "run.sh", {}, script, launch_of(job)), ConfigError);
}

// --- to Heddle

TEST(Script, ConstantsOfTrainingGoToHeddle) {
  const LaunchScript s = read_launch_script(
      kRun +
          "--num-layers 8 --hidden-size 2048 --num-attention-heads 16 --group-query-attention --num-query-groups 4 "
          "--kv-channels 128 --ffn-hidden-size 8192 --swiglu --seq-length 4096 --micro-batch-size 1 "
          "--global-batch-size "
          "64 --bf16 --vocab-size 50304 --disable-bias-linear --normalization RMSNorm --position-embedding-type "
          "rope "
          "--num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 1024 --moe-router-pre-softmax "
          "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
          "--untie-embeddings-and-output-weights "
          "--expert-model-parallel-size 8 --moe-layer-freq '([0]*1+[1]*7)' --rotary-base 500000 --rotary-percent "
          "0.5 "
          "--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --train-samples 64000 --lr-warmup-samples 640 "
          "--clip-grad 0.5 --qk-clip --qk-clip-threshold 80 "
          "--adam-beta2 0.98 --weight-decay 0.05 --moe-z-loss-coeff 1e-3 --moe-aux-loss-coeff 1e-2 "
          "--use-rope-scaling "
          "--apply-layernorm-1p --moe-router-load-balancing-type seq_aux_loss",
      "run.sh");
  const auto said = [&](const char* setting) {
    return std::count(s.constants.settings.begin(), s.constants.settings.end(), setting) == 1;
  };
  for (const char* setting : {"model.rope_theta=500000",
                              "model.partial_rotary_factor=0.5",
                              "model.rms_norm_eps=1e-05",
                              "model.sigmoid_scores=true",
                              "model.topk_bias=true",
                              "model.bias_update_rate=0.001",
                              "model.z_loss_weight=0.001",
                              "model.sequence_aux_loss_alpha=0.01",
                              "model.rope_scaling.type=llama3",
                              "model.rope_scaling.factor=8",
                              "train.learning_rate=0.0003",
                              "train.min_learning_rate=3e-05",
                              "train.schedule=cosine",
                              "train.steps=1000",
                              "train.warmup_steps=10",
                              "train.clip_norm=0.5",
                              "train.qk_clip=80",
                              "train.beta1=0.9",
                              "train.beta2=0.98",
                              "train.epsilon=1e-08",
                              "train.weight_decay=0.05",
                              "model.residual_dropout=0.1"})
    EXPECT_TRUE(said(setting)) << setting;
  EXPECT_TRUE(has(s.constants.lost, "--apply-layernorm-1p"));
  EXPECT_FALSE(has(s.constants.lost, "--rotary-base"));
  // Sigmoid gates are normed whatever else is said.
  EXPECT_TRUE(s.launch.job.shape.norm_topk_prob);
  Job job = s.launch.job;
  job.constants = std::make_shared<const std::vector<std::string>>(s.constants.settings);
  const std::vector<std::string> settings = planner::settings_of(launch_of(job));
  EXPECT_TRUE(has(settings, "model.norm_topk_prob=true"));
  EXPECT_TRUE(has(settings, "model.rope_theta=500000"));
  EXPECT_EQ(std::count_if(settings.begin(), settings.end(),
                          [](const std::string& x) { return x.starts_with("model.sigmoid_scores="); }),
            1);
}

TEST(Script, TheTrainersOwnDefaultsGoToHeddle) {
  const LaunchScript s = read_launch_script(kRun + kDense, "run.sh");
  for (const char* setting : {"model.rms_norm_eps=1e-05", "train.beta2=0.999", "train.weight_decay=0.01",
                              "train.schedule=linear", "train.warmup_steps=0", "train.min_learning_rate=0"})
    EXPECT_TRUE(has(s.constants.settings, setting)) << setting;
  const LaunchScript lost =
      read_launch_script(kRun + kDense +
                             "--optimizer sgd --moe-aux-loss-coeff 0.01 --fp8-format hybrid --lr-decay-style WSD "
                             "--decoupled-lr 1e-3 --activation-func-clamp-value 7",
                         "run.sh");
  for (const char* what : {"--optimizer sgd", "--fp8-recipe delayed", "--lr-wsd-decay-style exponential",
                           "--decoupled-lr 1e-3", "--activation-func-clamp-value 7"})
    EXPECT_TRUE(has(lost.constants.lost, what)) << what;
}

}  // namespace
}  // namespace heddle::advisor
