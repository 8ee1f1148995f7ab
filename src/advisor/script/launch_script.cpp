#include "advisor/script/launch_script.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "advisor/script/constants.h"
#include "advisor/script/flag_effects.h"
#include "advisor/script/launch_flags.h"
#include "advisor/script/model_name.h"
#include "advisor/shell/shell.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor {

namespace {

using FlagMap = std::map<std::string, std::vector<std::string>>;

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

// Flags that take no value, as far as their names show.
bool is_switch(std::string_view flag) {
  for (const std::string_view beginning :
       {"--no-", "--use-", "--disable-", "--enable-", "--overlap-", "--untie-", "--swiglu", "--bf16", "--fp16",
        "--sequence-parallel", "--finetune", "--group-query-attention", "--qk-layernorm", "--moe-grouped-gemm",
        "--log-throughput", "--mock-data", "--moe-permute-fusion"})
    if (flag.starts_with(beginning)) return true;
  return false;
}

// Reads the flags of a command. Unknown words, which may be flags or nothing, go to `stray`.
FlagMap flags_of_words(const std::vector<std::string>& words, std::vector<std::string>* stray = nullptr) {
  FlagMap flags;
  std::vector<std::string>* values = nullptr;
  std::string last;  // flag
  for (const std::string& word : words) {
    if (is_flag(word)) {
      const size_t equals = word.find('=');
      last = dashed(word.substr(0, equals));
      values = &flags[last];
      values->clear();
      if (equals != std::string::npos) values->push_back(word.substr(equals + 1));
    } else if (shell::is_all_unknown(word) && (values == nullptr || !values->empty() || is_switch(last))) {
      if (stray != nullptr) stray->push_back(word);
    } else if (values != nullptr) {
      values->push_back(word);
    }
  }
  return flags;
}

// Counts the flags of a command that every model needs.
size_t marks_of(const shell::Command& command) {
  static const std::array marks{"--num-layers", "--hidden-size",      "--num-attention-heads",
                                "--seq-length", "--micro-batch-size", "--tensor-model-parallel-size"};
  const FlagMap flags = flags_of_words(command.words);
  return static_cast<size_t>(
      std::count_if(marks.begin(), marks.end(), [&](const char* mark) { return flags.contains(mark); }));
}

// The command that looks most like training: a Python program with such flags.
const shell::Command* training_command(const std::vector<shell::Command>& commands) {
  const shell::Command* best = nullptr;
  size_t most = 0;
  for (const shell::Command& c : commands) {
    const size_t found = marks_of(c);
    const bool program = std::any_of(c.words.begin(), c.words.end(),
                                     [](const std::string& w) { return w.ends_with(".py") || w == "torchrun"; });
    const size_t worth = found * 4 + (program ? 2 : 0) + (c.certain ? 1 : 0);
    if (found > 0 && worth > most) best = &c, most = worth;
  }
  return best;
}

bool speaks_mindspeed(std::string_view text, const FlagMap& flags) {
  static const std::array own{"--schedules-method",  "--moe-fb-overlap",   "--reuse-fp32-param",
                              "--use-fused-rmsnorm", "--use-fused-swiglu", "--context-parallel-algo",
                              "--swap-attention",    "--recompute-norm",   "--recompute-activation-function",
                              "--use-ascend-mc2",    "--use-ascend-coc",   "--first-k-dense-replace",
                              "--moe-tp-extend-ep",  "--moe-zero-memory",  "--noop-layers",
                              "--swap-optimizer"};
  if (std::any_of(own.begin(), own.end(), [&](const char* f) { return flags.contains(f); })) return true;
  static const std::array words{"mindspeed", "MindSpeed", "HCCL_", "ASCEND", "NPUS_", "env_npu"};
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string_view::npos; });
}

// Counts the devices that a command starts, by the words of torchrun, msrun, srun, mpirun, Ray and their like.
class Devices {
 public:
  Devices(const shell::Command& command, const FlagMap& flags, const shell::Script& script)
      : flags_(flags), script_(script), words_(command.around) {
    const auto program = std::find_if(command.words.begin(), command.words.end(),
                                      [](const std::string& word) { return word.ends_with(".py"); });
    words_.insert(words_.end(), command.words.begin(), program);
  }

  int64_t count() {
    if (has_word("deepspeed")) return number("--num-gpus") * number("--num-nodes", 1);
    if (has_word("accelerate")) return number("--num-processes");
    if (flags_.contains("--nproc-per-node")) return number("--nproc-per-node") * number("--nnodes", 1);
    if (const int64_t all = number("--worker-num"); all > 0) return all;  // MindSpore's msrun
    if (const int64_t each = number("--actor-num-gpus-per-node"); each > 0)
      return each * number("--actor-num-nodes");
    if (const int64_t all = of_launcher(); all > 0) return all;
    return variable("WORLD_SIZE");
  }
  /// Why it is not known; "" where nothing says it.
  const std::string& why() const { return why_; }

 private:
  bool has_word(std::string_view word) const {
    return std::find(words_.begin(), words_.end(), word) != words_.end();
  }
  int64_t whole(const std::string& text, std::string_view of) {
    const bool digits = !text.empty() && text.size() < 8 &&
                        std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (digits) return std::stoll(text);
    why_ = shell::is_known(text) ? fmt::format("{} {}", of, shown(text)) : script_.why_unknown(text);
    return 0;
  }
  int64_t number(const char* name, int64_t otherwise = 0) {
    const auto it = flags_.find(name);
    return it == flags_.end() || it->second.empty() ? otherwise : whole(it->second.front(), name);
  }

  // srun and mpirun, before the program or around the string that holds it; else what Slurm's own lines say.
  int64_t of_launcher() {
    int64_t nodes = variable("SLURM_NNODES"), each = variable("SLURM_NTASKS_PER_NODE"),
            all = variable("SLURM_NTASKS");
    bool starts = false;
    for (size_t i = 0; i < words_.size(); ++i) {
      const std::string& word = words_[i];
      starts |= word == "srun" || word == "mpirun" || word == "mpiexec";
      const auto option = [&](std::string_view name, int64_t& into) {
        const bool is_long = name.starts_with("--");
        const std::string beginning = std::string(name) + (is_long ? "=" : "");
        if (word == name && i + 1 < words_.size()) into = whole(words_[i + 1], name);
        if (word.size() > beginning.size() && word.starts_with(beginning) &&
            (is_long || std::isdigit(static_cast<unsigned char>(word[beginning.size()])) != 0))
          into = whole(word.substr(beginning.size()), name);
      };
      int64_t said = 0;
      option("-n", said), option("-np", said), option("--ntasks", said);
      if (said > 0) all = said;
      said = 0;
      option("-N", said), option("--nodes", said);
      if (said > 0) nodes = said, all = 0;
      said = 0;
      option("--ntasks-per-node", said);
      if (said > 0) each = said, all = 0;
    }
    if (!starts) return 0;
    return all > 0 ? all : nodes * each;
  }
  int64_t variable(const char* name) {
    const shell::Values* found = script_.state.find(name);
    return found == nullptr || found->empty() ? 0 : whole(found->front(), name);
  }

  const FlagMap& flags_;
  const shell::Script& script_;
  shell::Values words_;  // before the program, or around the string that holds it
  std::string why_;
};

// A variable that is given and that nothing asks for would change nothing, in silence.
void check_used(const ScriptContext& context, const shell::Script& script, std::string_view name) {
  for (const auto& [variable, value] : context.variables) {
    if (script.used.contains(variable)) continue;
    const std::vector<std::string> known(script.used.begin(), script.used.end());
    config_error("{}: --set {}: the script has no such variable{}", name, shown(variable),
                 did_you_mean(variable, known));
  }
}

// "; its arguments 1, 2 are not given (--set 1=VALUE)": what a branch hangs on is not said by what it sets.
std::string arguments_missing(const shell::Script& script) {
  std::vector<int> missing;
  for (const std::string& name : script.used)
    if (name.size() < 4 && name != "0" && script.state.find(name) == nullptr &&
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      missing.push_back(std::stoi(name));
  std::sort(missing.begin(), missing.end());
  if (missing.empty()) return "";
  return fmt::format("; its arguments {} are not given (--set {}=VALUE)", fmt::join(missing, ", "),
                     missing.front());
}

// Refuses what leaves the rest of a script without meaning, before any size that such a script lacks.
void refuse_others(const GivenFlags& given, const FlagMap& flags) {
  for (const char* own : {"--deepspeed", "--deepspeed-config", "--zero-stage"})
    if (flags.contains(own))
      config_error("{} makes it a job of DeepSpeed, accepted: one of Megatron-LM or MindSpeed", own);
  for (const auto& [flag, values] : flags)
    if (effect_of(flag) == FlagEffect::other_model)
      config_error("{} makes a model of another kind, accepted: transformers that predict the next token",
                   shown(flag));
  // The modules that a model is built of; the other flags say those of transformers, too.
  std::string spec;
  if (given.has("--spec") && given.is_known("--spec"))
    for (const std::string& word : given.all("--spec")) spec += word;
  for (const char* other : {"mamba", "hybrid", "gated_delta", "retro", "t5", "bert"})
    if (spec.find(other) != std::string::npos)
      config_error("--spec {} makes a model of another kind, accepted: transformers that predict the next token",
                   shown(spec));
}

// The flags behind the program; those before it are its launcher's.
FlagMap own_flags(const shell::Command& command) {
  const auto program = std::find_if(command.words.begin(), command.words.end(),
                                    [](const std::string& word) { return word.ends_with(".py"); });
  return flags_of_words(program == command.words.end() ? command.words
                                                       : shell::Values(program, command.words.end()));
}

void sort_others(const GivenFlags& given, const FlagMap& own, LaunchScript& script) {
  for (const std::string& flag : given.unread()) {
    if (!own.contains(flag)) continue;
    const std::string name = shown(flag);
    switch (effect_of(flag)) {
      case FlagEffect::none:
      case FlagEffect::values: break;
      case FlagEffect::pace: script.others.pace.push_back(name); break;
      case FlagEffect::sizes: script.others.sizes.push_back(name); break;
      case FlagEffect::other_model: break;  // refused already
      case FlagEffect::unknown: script.others.unknown.push_back(name); break;
    }
  }
}

}  // namespace

LaunchScript read_launch_script(std::string_view text, std::string_view name, const ScriptContext& context) {
  const shell::Script read = shell::read_script(text, name, {context.variables, context.file});
  const shell::Command* command = training_command(read.commands);
  if (command == nullptr)
    config_error(
        "{}: no command with --num-layers, --hidden-size and the like{}, accepted: a launch script of "
        "Megatron-LM or MindSpeed",
        name,
        text.find("--num-layers") != std::string_view::npos ? " (they are set for another script to start)" : "");
  check_used(context, read, name);
  LaunchScript script;
  script.line = command->line;
  script.place =
      fmt::format("{}:{}", command->file == name ? command->file : escaped(command->file, 400), command->line);
  if (command->end != shell::kNowhere) script.end = command->end;
  if (!script.end && command->string_end != shell::kNowhere) {
    script.quote = command->quote;
    script.string_end = command->string_end;
    script.outer_line = command->outer_line;
  }
  script.evaluated = command->evaluated;
  for (const shell::Command& c : read.commands)
    if (&c > command && c.certain && script.end && c.end != shell::kNowhere && c.end > *script.end &&
        marks_of(c) == marks_of(*command) &&
        std::find(script.later_ends.begin(), script.later_ends.end(), c.end) == script.later_ends.end())
      script.later_ends.push_back(c.end);
  if (const shell::Values* set = read.state.find("CUDA_DEVICE_MAX_CONNECTIONS");
      set != nullptr && !set->empty() && shell::is_known(set->front()))
    script.connections = set->front();
  script.notes = read.notes;
  for (const shell::Overridden& o : read.overridden) script.given.push_back({o.name, o.line, o.begin, o.end});
  if (!command->certain)
    script.notes.push_back(fmt::format("line {}: the command is in a branch that may not be taken", command->line));
  std::vector<std::string> stray;
  const FlagMap flags = flags_of_words(command->words, &stray);
  for (const std::string& word : stray)
    script.notes.push_back(
        fmt::format("the command also gets arguments that are not known ({})", read.why_unknown(word)));
  for (const auto& [flag, values] : flags)
    std::copy_if(values.begin(), values.end(), std::back_inserter(script.flags[flag]), shell::is_known);
  script.dialect = speaks_mindspeed(text, flags) ? Dialect::mindspeed : Dialect::megatron;
  const bool mindspeed = script.dialect == Dialect::mindspeed;

  Launch& launch = script.launch;
  launch.job.device = context.device;
  if (launch.job.device.name.empty()) {
    launch.job.device = *cost::accelerator_named(mindspeed ? "Ascend-910B" : "H100");
    script.notes.push_back(fmt::format("no device is given: taken as {}", launch.job.device.name));
  }
  launch.job.imbalance = context.imbalance;
  const GivenFlags given(flags, script.place, [&](const std::string& value) {
    const std::string why = read.why_unknown(value);
    return why + (why.find("the script's argument") != std::string::npos ? arguments_missing(read) : "");
  });
  const auto in_place = [&](const std::function<void()>& reads) {
    try {
      reads();
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      if (what.starts_with(script.place)) throw;
      config_error("{}: {}", script.place, what);
    }
  };
  in_place([&] { refuse_others(given, flags); });
  Devices counted(*command, flags, read);
  const int64_t devices = context.devices > 0 ? context.devices : counted.count();
  if (devices < 1 || devices > (1 << 24))
    config_error(
        "{}: the script does not say how many devices it starts (--nproc_per_node and --nnodes of "
        "torchrun){}{}; "
        "give --devices",
        script.place, counted.why().empty() ? "" : "; " + counted.why(), arguments_missing(read));
  in_place([&] {
    read_flags(given, script.dialect, static_cast<int>(devices), launch, script.notes);
    sort_others(given, own_flags(*command), script);
    script.constants = constants_of(given, launch);
  });
  launch.job.shape.name = name_of_shape(launch, evidence_of(given)).name;
  if (const std::string wrong = estimate(launch.job).reason; !wrong.empty())
    config_error("{}: {}", script.place, wrong);
  return script;
}

}  // namespace heddle::advisor
