#include "heddle/search/launch/launch_script.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/launch/launch_flags.h"
#include "heddle/search/launch/shell_words.h"

namespace heddle::search {

namespace {

using FlagMap = std::map<std::string, std::vector<std::string>>;

// Flags that change neither time nor memory of a step as it is estimated: by beginning.
constexpr std::array kSilent{"--lr",
                             "--min-lr",
                             "--train-",
                             "--save",
                             "--load",
                             "--log",
                             "--eval",
                             "--tokenizer",
                             "--data-",
                             "--split",
                             "--clip-grad",
                             "--weight-decay",
                             "--adam-",
                             "--init-method",
                             "--seed",
                             "--exit-",
                             "--tensorboard",
                             "--wandb",
                             "--num-workers",
                             "--vocab-file",
                             "--merge-file",
                             "--make-vocab",
                             "--no-load",
                             "--no-save",
                             "--finetune",
                             "--distributed-",
                             "--use-mcore-models",
                             "--transformer-impl",
                             "--mock-data",
                             "--rotary",
                             "--rope-",
                             "--beta-",
                             "--norm-epsilon",
                             "--optimizer",
                             "--initial-loss-scale",
                             "--loss-scale",
                             "--attention-softmax-in-fp32",
                             "--moe-aux-loss",
                             "--moe-router-load-balancing",
                             "--moe-router-topk-scaling",
                             "--moe-router-score",
                             "--moe-router-dtype",
                             "--moe-router-bias-update",
                             "--moe-router-pre-softmax",
                             "--moe-z-loss",
                             "--moe-grouped-gemm",
                             "--moe-permute-fusion",
                             "--moe-router-fusion",
                             "--moe-router-num-groups",
                             "--moe-router-group-topk",
                             "--mtp-loss",
                             "--no-masked-softmax-fusion",
                             "--no-gradient-accumulation-fusion",
                             "--manual-gc",
                             "--dist-ckpt",
                             "--ckpt-",
                             "--auto-detect",
                             "--timing",
                             "--no-check",
                             "--override",
                             "--reset-",
                             "--use-checkpoint",
                             "--bf16",
                             "--accumulate-allreduce",
                             "--delay-wgrad",
                             "--te-rng",
                             "--no-create-attention-mask",
                             "--cross-entropy-fusion-impl",
                             "--no-bias",
                             "--no-rope-fusion",
                             "--use-fused",
                             "--apply-",
                             "--start-weight",
                             "--end-weight",
                             "--kv-lora",
                             "--profile",
                             "--no-mmap",
                             "--calculate-per-token",
                             "--spec",
                             "--seq-aux",
                             "--norm-topk",
                             "--data-parallel-",
                             "--nproc",
                             "--nnodes",
                             "--node",
                             "--master",
                             "--rdzv",
                             "--squared-relu",
                             "--use-flash-attn",
                             "--attention-backend",
                             "--q-lora",
                             "--qk-head",
                             "--qk-pos",
                             "--v-head",
                             "--exp-avg",
                             "--main-",
                             "--fp4-recipe",
                             "--fp8-"};

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

FlagMap flags_of_words(const std::vector<std::string>& words) {
  FlagMap flags;
  std::vector<std::string>* values = nullptr;
  for (const std::string& word : words) {
    if (is_flag(word)) {
      const size_t equals = word.find('=');
      values = &flags[dashed(word.substr(0, equals))];
      values->clear();
      if (equals != std::string::npos) values->push_back(word.substr(equals + 1));
    } else if (values != nullptr) {
      values->push_back(word);
    }
  }
  return flags;
}

// The command that looks most like training: a Python program with the flags that every model needs.
const ShellCommand* training_command(const std::vector<ShellCommand>& commands) {
  static const std::array marks{"--num-layers", "--hidden-size",      "--num-attention-heads",
                                "--seq-length", "--micro-batch-size", "--tensor-model-parallel-size"};
  const ShellCommand* best = nullptr;
  size_t most = 0;
  for (const ShellCommand& c : commands) {
    const FlagMap flags = flags_of_words(c.words);
    size_t found = 0;
    for (const char* mark : marks) found += flags.contains(mark);
    const bool program = std::any_of(c.words.begin(), c.words.end(),
                                     [](const std::string& w) { return w.ends_with(".py") || w == "torchrun"; });
    if (found > 0 && found * 2 + program > most) best = &c, most = found * 2 + program;
  }
  return best;
}

bool speaks_mindspeed(std::string_view text, const FlagMap& flags) {
  static const std::array own{"--schedules-method",  "--moe-fb-overlap",   "--reuse-fp32-param",
                              "--use-fused-rmsnorm", "--use-fused-swiglu", "--context-parallel-algo",
                              "--swap-attention",    "--recompute-norm",   "--recompute-activation-function",
                              "--use-ascend-mc2",    "--use-ascend-coc",   "--first-k-dense-replace",
                              "--moe-tp-extend-ep",  "--moe-zero-memory",  "--noop-layers"};
  if (std::any_of(own.begin(), own.end(), [&](const char* f) { return flags.contains(f); })) return true;
  return text.find("mindspeed") != std::string_view::npos || text.find("HCCL_") != std::string_view::npos ||
         text.find("ASCEND") != std::string_view::npos;
}

// torchrun's --nproc_per_node × --nnodes; 0 where that isn't said.
int64_t devices_of(const FlagMap& flags) {
  const auto count = [&](const char* name) -> int64_t {
    const auto it = flags.find(name);
    if (it == flags.end() || it->second.empty()) return 0;
    const std::string& text = it->second.front();
    const bool whole = !text.empty() && text.size() < 8 &&
                       std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    return whole ? std::stoll(text) : 0;
  };
  return count("--nproc-per-node") * (flags.contains("--nnodes") ? count("--nnodes") : 1);
}

// A published model of these sizes has a name.
std::string name_of_shape(const Launch& launch) {
  for (const model::Shape& preset : model::shape_presets()) {
    Launch published = launch;
    published.job.shape = preset;
    published.job.shape.mtp = launch.job.shape.mtp;
    // What takes no time scripts often leave out.
    published.job.shape.moe.groups = launch.job.shape.moe.groups;
    published.job.shape.moe.gate_scale = launch.job.shape.moe.gate_scale;
    published.job.shape.moe.normed_gates = launch.job.shape.moe.normed_gates;
    model::Shape known = normalized(published).job.shape;
    known.name = launch.job.shape.name;
    if (known == normalized(launch).job.shape) return preset.name;
  }
  return "";
}

}  // namespace

LaunchScript read_launch_script(std::string_view text, std::string_view name, const ScriptContext& context) {
  ShellText shell = read_shell(text, name, context.variables);
  const ShellCommand* command = training_command(shell.commands);
  if (command == nullptr)
    config_error(
        "{}: no command with --num-layers, --hidden-size and the like, accepted: a launch script of "
        "Megatron-LM or MindSpeed",
        name);
  LaunchScript script;
  script.line = command->line;
  script.end = command->end;
  script.notes = std::move(shell.notes);
  const FlagMap& flags = script.flags = flags_of_words(command->words);
  script.dialect = speaks_mindspeed(text, flags) ? Dialect::mindspeed : Dialect::megatron;
  const bool mindspeed = script.dialect == Dialect::mindspeed;

  Launch& launch = script.launch;
  launch.job.device = context.device;
  if (launch.job.device.name.empty()) {
    launch.job.device = *cost::accelerator_named(mindspeed ? "Ascend-910B" : "H100");
    script.notes.push_back(fmt::format("no device is given: taken as {}", launch.job.device.name));
  }
  launch.job.imbalance = context.imbalance;
  const int64_t devices = context.devices > 0 ? context.devices : devices_of(flags);
  if (devices < 1 || devices > (1 << 24))
    config_error(
        "{}:{}: how many devices it starts is not said (--nproc_per_node and --nnodes of torchrun), "
        "give --devices",
        name, command->line);
  const GivenFlags given(flags, fmt::format("{}:{}", name, command->line));
  try {
    read_flags(given, script.dialect, static_cast<int>(devices), launch, script.notes);
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    if (what.starts_with(name)) throw;
    config_error("{}:{}: {}", name, command->line, what);
  }
  launch.job.shape.name = name_of_shape(launch);
  for (const std::string& flag : given.unread()) {
    const bool silent =
        std::any_of(kSilent.begin(), kSilent.end(), [&](const char* s) { return flag.starts_with(s); });
    if (!silent) script.unknown.push_back(shown(flag));
  }
  if (const std::string wrong = estimate(launch.job).reason; !wrong.empty())
    config_error("{}:{}: {}", name, command->line, wrong);
  return script;
}

}  // namespace heddle::search
