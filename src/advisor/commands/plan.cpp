// heddle plan: what a model, a launch script or a configuration takes, whether it fits, how fast it is, and what to
// change.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "advisor/advice/targets.h"
#include "advisor/answer/plan_answer.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/session/signals.h"

namespace heddle::cli {

namespace {

constexpr double kNotGiven = -1;

struct PlanOptions {
  advisor::PlanRequest request;
  std::optional<std::string> cluster;  // "" is refused, not taken as none
  int64_t threads = 0;
  std::string beside;  // another subject
  double routing = kNotGiven, imbalance = kNotGiven;
  double slower = 2;  // per cent that it may be slower than that one
  std::string out;    // file for the plan as the trainer's input
  bool json = false;
};

using Json = nlohmann::ordered_json;

// `told`: the answer is printed as soon as there is one, and set to true then.
advisor::PlanAnswer answer(const PlanOptions& o, const std::string& subject, bool* told) {
  advisor::PlanRequest request = o.request;
  request.subject = subject;
  if (o.cluster) request.cluster = *o.cluster;
  request.threads = static_cast<int>(o.threads);
  if (o.routing != kNotGiven) request.routing = o.routing;
  if (o.imbalance != kNotGiven) request.imbalance = o.imbalance;
  std::optional<observe::Doing> doing("reading");
  advisor::PlanWatch watch;
  watch.stop = [] { return session::Signals::take().stop; };
  watch.doing = [&](const std::string& what, double part) { doing->now(what, part); };
  watch.first = [&](const advisor::PlanAnswer& so_far) {
    if (told == nullptr) return;
    *told = true;
    doing.reset();
    say("{}", text_of(so_far, observe::describe_terminal(1)));
    doing.emplace("searching for the fewest devices");
  };
  return answer_plan(request, watch);
}

// Why there is no file: the reason of a better plan that can't be written is a note.
const char* why_not(const advisor::PlanAnswer& found) {
  if (found.kind == advisor::PlanKind::model || !found.good()) return "";
  if (found.counted) return ": on this machine single changes are tried, and no better plan is searched";
  return found.better ? "" : ": no better plan was found";
}

// Ahead of a search that takes minutes.
void check(const PlanOptions& o) {
  namespace fs = std::filesystem;
  if (o.cluster && o.cluster->empty())
    config_error("plan: --cluster is empty, accepted: an accelerator such as H800, or a TOML file of a cluster");
  if (o.out.empty()) return;
  std::error_code error;
  for (const std::string& read : {o.request.subject, o.beside, o.cluster.value_or(""), o.request.calibration})
    if (fs::equivalent(o.out, read, error))
      config_error("plan: --out {} is {}, which is read; name another file", o.out, read);
  if (fs::is_symlink(o.out, error))
    config_error("plan: --out {} is a symbolic link; name the file that is to be written", o.out);
  if (fs::exists(o.out, error) && !fs::is_regular_file(o.out, error))
    config_error("plan: cannot write {}: no plain file", o.out);
}

int plan(const PlanOptions& o) {
  check(o);
  const session::Signals signals;
  session::Signals::answer("the answer so far follows; asked again it ends without it", "nothing was found yet");
  bool told = false;
  advisor::PlanAnswer found = answer(o, o.request.subject, o.json || !o.beside.empty() ? nullptr : &told);
  if (!o.beside.empty()) put_beside(found, answer(o, o.beside, nullptr));
  const bool of_model = found.kind == advisor::PlanKind::model;
  const bool writes = !o.out.empty() && (of_model ? found.good() : !found.script.empty());
  if (writes && found.script.empty())
    config_error("plan: --out {}: {} can't run it: {}; nothing is written", o.out, found.typed.front().program,
                 found.typed.front().refusal);
  if (writes) write_file(o.out, found.script);
  if (o.json) {
    say("{}\n", json_of(found).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    if (found.stopped) say("stopped early, the best so far:\n\n");
    if (!told) say("{}", text_of(found, observe::describe_terminal(1)));
    if (told && found.fewest_devices > 0) say("{}\n", fewest_text(found));
    if (writes) say("\nwritten: {}\n", o.out);
    if (!o.out.empty() && !writes) say("\nnothing is written to {}{}\n", o.out, why_not(found));
  }
  const bool slower = found.beside && found.tokens_per_s.value < (1 - o.slower / 100) * found.beside->tokens_per_s;
  const bool unwritten = !o.out.empty() && found.better && !writes;
  return found.good() && !slower && !unwritten ? kDone : kFailed;
}

}  // namespace

void add_plan(Commands& all) {
  auto [command, o] = add_command(
      all, "plan", "What a training job takes, whether it fits, how fast it is, and what to change", plan);
  advisor::PlanRequest& request = o.request;
  command
      .option(
          "SUBJECT", request.subject,
          "A published model by name, a folder with its config.json, a launch script of Megatron-LM or MindSpeed "
          "(read, never run), or a configuration of Heddle")
      .required();
  command.option("--cluster", o.cluster, "An accelerator such as H800, or a TOML file of a cluster; H100")
      .called("NAME|FILE");
  command
      .option("--devices", request.devices,
              "Accelerators; without it as the script says, of a model the fewest that train it")
      .from(1, 1 << 20);
  command.option("--global-batch", request.global_batch, "Sequences of a step; without it 4 Mi tokens of a model")
      .from(1, 1 << 24);
  command.option("--sequence", request.sequence, "Tokens of a sequence; without it 4096 of a model")
      .from(1, 100'000'000);
  command.option("--precision", request.precision, "Of a model's matrix products")
      .among({"bf16", "fp16", "fp8", "mxfp8", "block8", "nvfp4"});
  command.option("--memory", request.memory, "Of a device, such as 80GiB; else 92 % of the accelerator's")
      .called("BYTES");
  command
      .option("--for", request.target,
              "The trainer; without it the script's own, of a model MindSpeed on Ascend and Megatron-LM elsewhere")
      .among(advisor::emit_targets());
  command
      .option("--routing", o.routing,
              "Of a model: relative deviation of the experts' loads; natural routing is near 0.13")
      .from(0.0, 10.0);
  command.option("--imbalance", o.imbalance, "Of a script: rows of the fullest expert rank over the mean")
      .from(1.0, 100.0);
  command
      .option("--set", request.set,
              "A variable of the script, NAME=VALUE, or a key of the configuration; may be given again")
      .called("NAME=VALUE");
  command.option("--calibration", request.calibration, "Scalars to use in place of the built-in ones")
      .called("FILE");
  command
      .option("--beside", o.beside,
              "Another job, such as the script before a change; the status is 1 where SUBJECT is slower than it")
      .called("SUBJECT");
  command.option("--slower", o.slower, "With --beside: per cent that SUBJECT may be slower; 2")
      .from(0.0, 100.0)
      .needs("--beside");
  command
      .option("--out", o.out, "Write the plan, or what is better than the job, as the trainer's input to this file")
      .called("FILE");
  command.option("--threads", o.threads, "In place of one a core").from(1, 4096);
  add_json(command, o.json);
}

}  // namespace heddle::cli
