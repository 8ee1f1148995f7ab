#include "advisor/answer/plan_answer.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "advisor/advice/better.h"
#include "advisor/advice/targets.h"
#include "advisor/answer/asked_model.h"
#include "advisor/answer/cluster_file.h"
#include "advisor/answer/config_here.h"
#include "advisor/answer/config_job.h"
#include "advisor/answer/fewest_beyond.h"
#include "advisor/answer/launch_figures.h"
#include "advisor/answer/one_changes.h"
#include "advisor/answer/script_job.h"
#include "advisor/answer/subject.h"
#include "advisor/answer/typed_words.h"
#include "advisor/script/rewrite_script.h"
#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/observe/units.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/planner/simulated_plans.h"

namespace heddle::advisor {

namespace {

constexpr size_t kChanges = 3;
constexpr int kTriedChanges = 40;   // plans, until one is found that the target can run
constexpr double kTrials_s = 3;     // of single changes on this machine
constexpr int kMostUnasked = 1024;  // devices that a model without --devices may get
constexpr int kMostSought = 4096;   // devices that are tried where fewer do not fit, or
constexpr int kTimes = 16;          // so many times as many as were asked for
constexpr const char* kUsualCluster = "H100";
constexpr int64_t kUsualSequence = 4096;

const char* usual_target(const cost::Accelerator& device) {
  return device.family == cost::Family::ascend ? "mindspeed" : "megatron";
}

// The launch explained, its times as measured jobs like it are over their estimates.
search::Explanation explained(const Launch& launch, const Calibration& calibration, double memory_bytes,
                              const std::optional<cost::Routing>& routing = {}) {
  search::ExplainRequest request;
  request.routing = routing;
  request.scale = [&](const Launch& one) { return calibration.interval(one.job, search::estimate(one.job)); };
  request.memory_bytes = memory_bytes;
  return search::explain(launch, request);
}

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789.") == std::string::npos; }

double scale_of(const Launch& launch, const Calibration& calibration) {
  return calibration.interval(launch.job, search::estimate(launch.job)).scale;
}

// Changes of the plan, each with the correction that a plan of its own would have.
std::vector<PlanChange> calibrated_changes(const search::Explanation& plan, std::string_view target,
                                           const LaunchScript* script, const Calibration& calibration) {
  return one_changes(
      plan, target, script, [&](const Launch& launch) { return scale_of(launch, calibration); }, kChanges);
}

double memory_of(const PlanRequest& request, const cost::Accelerator& device) {
  constexpr int64_t kLeast = int64_t{1} << 30;  // less is a number without its unit
  if (request.memory.empty()) return search::usable_bytes(device);
  const int64_t bytes = config::parse_bytes(request.memory);
  if (bytes < kLeast)
    config_error("--memory {} is {} bytes{}", request.memory, bytes,
                 is_number(request.memory) ? fmt::format("; {}GiB?", request.memory) : ", accepted: 1GiB or more");
  return static_cast<double>(bytes);
}

// Words for the plan's own trainer, then for the others that people may have.
void put_typed(const Launch& launch, const std::string& target, PlanAnswer& a) {
  a.typed.push_back(typed_words(launch, target));
  for (const char* other : {"megatron", "heddle"})
    if (target != other) a.typed.push_back(typed_words(launch, other));
}

void put_nothing(const search::Query& query, const std::string& nearest, const PlanWatch& watch, PlanAnswer& a) {
  a.nearest = nearest;
  if (watch.first) watch.first(a);
  if (watch.doing) watch.doing("searching for the fewest devices", -1);
  a.fewest_devices = fewest_beyond(query, std::max(kMostSought, times_devices(query, kTimes)), watch.stop);
}

void put_better(const Launch& given, const Better& better, const Calibration& calibration, PlanAnswer& a,
                const LaunchScript* script) {
  const double scale = scale_of(better.launch, calibration);
  BetterPlan plan;
  plan.layout = search::layout_line(better.launch.job);
  plan.schedule = better.launch.schedule;
  plan.changes = better.changes;
  plan.tokens_per_s = search::tokens_per_s_per_device(better.launch.job, better.plan.exact.step_s * scale) *
                      better.launch.job.mesh.ranks();
  plan.speed_ratio = plan.tokens_per_s / a.tokens_per_s.value;
  plan.peak_bytes = better.plan.exact.peak_bytes;
  WordChanges words = word_changes(given, better.launch, a.target, script);
  plan.add = std::move(words.add);
  plan.remove = std::move(words.remove);
  a.better = std::move(plan);
}

// The script or configuration of a launch, "" where the target can't run it.
std::string script_of(const Launch& launch, const std::string& target) {
  return refusals_of(launch, target).empty() ? launch_text(launch, target) : "";
}

// The batch of a model that nobody has said: whole sequences for each device, and kUsualTokens at least.
int64_t usual_batch(int64_t devices, int64_t sequence) {
  const int64_t wanted = std::max<int64_t>(1, kUsualTokens / sequence);
  return (wanted + devices - 1) / devices * devices;
}

// ConfigError where there is none of this name, and where the device lacks it.
cost::Precision precision_of(const std::string& name, const cost::Accelerator& device) {
  if (name.empty()) return cost::Precision::bf16;
  std::vector<std::string_view> accepted;
  for (const cost::Precision p : {cost::Precision::bf16, cost::Precision::fp16, cost::Precision::fp8,
                                  cost::Precision::mxfp8, cost::Precision::block8, cost::Precision::nvfp4}) {
    const bool four = p == cost::Precision::nvfp4,
               sixteen = p == cost::Precision::bf16 || p == cost::Precision::fp16;
    if (!sixteen && (four ? device.fp4_flops : device.fp8_flops) <= 0) continue;
    if (cost::name_of(p) == name) return p;
    accepted.push_back(cost::name_of(p));
  }
  config_error("plan: {} has no products in {}, accepted: {}", device.name, name.substr(0, 40),
               fmt::join(accepted, ", "));
}

cost::Accelerator cluster_of(const PlanRequest& request, PlanAnswer& a) {
  if (!request.cluster.empty()) return read_cluster(request.cluster);
  a.assumed.push_back(fmt::format("cluster {} (--cluster)", kUsualCluster));
  return read_cluster(kUsualCluster);
}

search::Query query_of(const PlanRequest& request, const SearchedModel& model, PlanAnswer& a) {
  search::Query query;
  Job& job = query.space.job;
  job.shape = model.shape;
  job.constants = model.constants;
  job.device = cluster_of(request, a);
  job.precision = precision_of(request.precision, job.device);
  int64_t sequence = request.sequence;
  if (sequence == 0) {
    sequence = job.shape.learned_positions() > 0 ? std::min(kUsualSequence, job.shape.learned_positions())
                                                 : kUsualSequence;
    a.assumed.push_back(fmt::format("sequence {} (--sequence)", sequence));
  }
  job.sequence = static_cast<double>(sequence);
  int64_t batch = request.global_batch;
  if (batch == 0) {
    batch = usual_batch(std::max<int64_t>(1, request.devices), sequence);
    a.assumed.push_back(fmt::format("global batch {} (--global-batch)", batch));
  }
  job.global_batch = static_cast<int>(batch);
  a.target = request.target.empty() ? usual_target(job.device) : request.target;
  if (request.target.empty()) a.assumed.push_back(fmt::format("trainer {} (--for)", a.target));
  restrict_to(a.target, query.space.restriction, job);
  query.space.devices = static_cast<int>(request.devices);
  if (request.routing) query.space.routing.spread = *request.routing;
  query.memory_bytes = memory_of(request, job.device);
  query.top = kTriedChanges;
  query.threads = request.threads;
  return query;
}

// The name as asked, without its owner, where the model has another; letters and digits count.
std::string other_name(const std::string& asked, const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_directory(asked, ignored)) return "";
  const auto letters = [](std::string_view text) {
    std::string plain;
    for (const unsigned char c : text)
      if (std::isalnum(c) != 0) plain += static_cast<char>(std::tolower(c));
    return plain;
  };
  const std::string own = asked.substr(asked.rfind('/') + 1);
  return letters(own) == letters(name) ? "" : own;
}

PlanAnswer answer_model(const PlanRequest& request, const std::string& name, const PlanWatch& watch) {
  PlanAnswer a;
  a.kind = PlanKind::model;
  const SearchedModel model = read_model(name, request.sequence > 0 ? request.sequence : kUsualSequence);
  search::Query query = query_of(request, model, a);
  Job& job = query.space.job;
  const Calibration calibration = read_calibration(request.calibration);
  std::unique_ptr<search::LoweredBlocks> blocks;
  if (a.target == "heddle") {
    blocks = planner::lowered_blocks(job);
    if (!blocks) config_error("plan: heddle can't run this: {}", planner::refusals_of_model(job).front());
    job.software.lowered = blocks.get();
  }
  search::Answer found;
  if (request.devices > 0) {
    found = search::search(
        query,
        [&](size_t done, size_t of, uint64_t) {
          if (watch.doing) watch.doing("searching", static_cast<double>(done) / static_cast<double>(of));
        },
        watch.stop);
  } else {
    if (watch.doing) watch.doing("searching for the fewest devices", -1);
    std::optional<search::Fewest> fewest = fewest_from(query, 1, kMostUnasked, watch.stop);
    query.space.devices = fewest ? fewest->devices : kMostUnasked;
    if (fewest) {
      found = std::move(fewest->answer);
      a.assumed.push_back(fmt::format("devices {}, the fewest that train it (--devices)", fewest->devices));
    }
  }
  a.model = job.shape.name;
  a.device = job.device.name;
  a.devices = query.space.devices;
  a.global_batch = job.global_batch;
  a.sequence = static_cast<int64_t>(job.sequence);
  a.precision = cost::name_of(job.precision);
  a.memory_bytes = query.memory_bytes;
  a.searched = found.plans;
  a.stopped = found.stopped;
  if (const std::string own = other_name(name, job.shape.name); !own.empty())
    a.notes.push_back(fmt::format("{} is taken as {}", own, job.shape.name));
  if (!model.unread.empty()) a.notes.push_back("sizes alone are known of the model: " + model.unread);
  if (found.top.empty()) {
    if (request.devices > 0) put_nothing(query, found.misfit, watch, a);
    return a;
  }
  const auto sayable = std::find_if(found.top.begin(), found.top.end(), [&](const Ranked& r) {
    return refusals_of(search::launch_of(r), a.target).empty();
  });
  const Ranked& best = sayable != found.top.end() ? *sayable : found.top.front();
  Launch launch = search::launch_of(best);
  launch.memory_bytes = query.memory_bytes;
  const search::Explanation plan = explained(launch, calibration, query.memory_bytes, query.space.routing);
  put_figures(plan, a);
  if (sayable != found.top.end()) a.changes = calibrated_changes(plan, a.target, nullptr, calibration);
  put_typed(launch, a.target, a);
  a.script = script_of(launch, a.target);
  return a;
}

PlanAnswer answer_script(const PlanRequest& request, const std::string& path, const PlanWatch& watch) {
  PlanAnswer a;
  a.kind = PlanKind::script;
  const ScriptJob job =
      read_script_job({path, request.cluster, request.devices, request.imbalance.value_or(1), request.set});
  const LaunchScript& script = job.script;
  if (request.global_batch > 0 || request.sequence > 0)
    config_error("plan: --global-batch and --sequence are of a model; {} says its own (--set NAME=VALUE)", path);
  const std::string own = target_of(script.dialect);
  a.target = request.target.empty() ? own : request.target;
  if (a.target != own)
    config_error("plan: {} is for {}; `heddle search --from {} --emit {}` writes it for another trainer", path, own,
                 path, a.target);
  a.place = script.place;
  a.notes = job.unread();
  for (const std::string& note : script.notes)
    if (!note.starts_with("no device is given")) a.notes.push_back(note);  // the assumed cluster says it
  if (request.cluster.empty())
    a.assumed.push_back(fmt::format("cluster {} (--cluster)", script.launch.job.device.name));
  const Calibration calibration = read_calibration(request.calibration);
  const double memory_bytes = memory_of(request, script.launch.job.device);
  const search::Explanation given = explained(script.launch, calibration, memory_bytes);
  put_figures(given, a);
  a.changes = calibrated_changes(given, a.target, &script, calibration);
  put_typed(script.launch, a.target, a);
  if (watch.doing) watch.doing("searching for a better plan", -1);
  const BetterAnswer found = search_better(script.launch, a.target, memory_bytes, watch.stop);
  a.searched = found.answer.plans;
  a.stopped = found.answer.stopped;
  if (found.best) {
    put_better(script.launch, *found.best, calibration, a, &script);
    try {
      a.script = rewritten(job.text, path, job.context, script, found.best->launch);
    } catch (const ConfigError& error) {
      a.notes.push_back(fmt::format("the better plan can't be written into the script: {}", error.what()));
    }
  } else if (!given.fits && a.changes.empty() && found.answer.top.empty()) {
    put_nothing(query_beside(script.launch, a.target, memory_bytes), found.answer.misfit, watch, a);
  }
  return a;
}

// Drops the settings that the configuration has as they are.
void drop_settings_of(const std::string& path, const std::vector<std::string>& set, const config::RunConfig& config,
                      std::vector<std::string>& settings) {
  std::erase_if(settings, [&](const std::string& setting) {
    try {
      std::vector<std::string> with = set;
      with.push_back(setting);
      const config::RunConfig changed = config::read_run_config(path, with);
      const std::vector<config::Setting>& all = config::settings();
      return std::all_of(all.begin(), all.end(), [&](const config::Setting& s) {
        const bool here = !s.present || s.present(config), there = !s.present || s.present(changed);
        return here == there && (!here || s.get(config) == s.get(changed));
      });
    } catch (const ConfigError&) {  // it goes with others alone
      return false;
    }
  });
}

PlanAnswer answer_config(const PlanRequest& request, const std::string& path, const PlanWatch& watch) {
  PlanRequest asked = request;
  asked.subject = path;
  if (!request.target.empty() && request.target != "heddle")
    config_error("plan: {} is a configuration of heddle, not of {}", path, request.target);
  const config::RunConfig config = config::read_run_config(path, settings_of(asked));
  if (request.cluster.empty() && config.device.backend == "host")
    return answer_config_here(asked, watch, kTrials_s);
  PlanAnswer a;
  a.kind = PlanKind::config;
  a.target = "heddle";
  Launch launch = launch_of_config(config, cluster_of(request, a), a.notes);
  if (const std::string reason = search::impossible(launch); !reason.empty()) config_error("{}: {}", path, reason);
  const std::unique_ptr<search::LoweredBlocks> blocks = planner::lowered_blocks(launch.job);
  launch.job.software.lowered = blocks.get();
  if (blocks)  // what a residency costs, the blocks know
    for (const search::PricedResidency& priced : blocks->residencies(launch.job))
      if (static_cast<const plan::Residency&>(priced) == launch.job.residency) launch.job.residency = priced;
  const double asked_bytes = memory_of(request, launch.job.device);
  const double memory_bytes = launch.memory_bytes > 0 ? launch.memory_bytes : asked_bytes;
  const Calibration calibration = read_calibration(request.calibration);
  const search::Explanation given = explained(launch, calibration, memory_bytes);
  put_figures(given, a);
  a.notes.emplace_back("bytes are estimates: `heddle inspect` counts the program");
  a.changes = calibrated_changes(given, a.target, nullptr, calibration);
  put_typed(launch, a.target, a);
  if (watch.doing) watch.doing("searching for a better plan", -1);
  search::Query query = query_beside(launch, "heddle", memory_bytes);
  query.space.job.constants = launch.job.constants;
  query.space.job.software.lowered = blocks.get();
  query.threads = request.threads;
  search::Answer found = search::search(query, {}, watch.stop);
  a.searched = found.plans;
  a.stopped = found.stopped;
  for (const Ranked& plan : found.top) {
    const double ratio = plan.exact.step_s / given.plan.exact.step_s;
    if (given.fits && ratio > 1 - kWorthwhile) break;
    if (!refusals_of(search::launch_of(plan), "heddle").empty()) continue;
    const Better better = better_of(launch, given.plan.exact.step_s, plan);
    put_better(launch, better, calibration, a, nullptr);
    drop_settings_of(path, settings_of(asked), config, a.better->add);
    if (a.better->add.empty() && a.better->remove.empty())
      a.better.reset();  // the file says it already
    else
      a.script = script_of(better.launch, "heddle");
    break;
  }
  if (!given.fits && !a.better) put_nothing(query, found.misfit, watch, a);
  return a;
}

// Options of a model or of a script alone are refused of anything else, for they would change nothing.
void refuse_of_other_kinds(const PlanRequest& request, const Subject& subject) {
  const struct {
    const char* option;
    bool given;
    PlanKind of;
    const char* whose;
  } all[] = {{"--precision", !request.precision.empty(), PlanKind::model, "a model"},
             {"--routing", request.routing.has_value(), PlanKind::model, "a model"},
             {"--imbalance", request.imbalance.has_value(), PlanKind::script, "a script"}};
  for (const auto& o : all)
    if (o.given && subject.kind != o.of)
      config_error("plan: {} is of {}, {} is {}", o.option, o.whose, request.subject.substr(0, 200),
                   subject.kind == PlanKind::model    ? "a model"
                   : subject.kind == PlanKind::script ? "a script, which says its own"
                                                      : "a configuration, which says its own");
  if (!request.set.empty() && subject.kind == PlanKind::model)
    config_error("plan: --set is of a script or a configuration, {} is a model", request.subject.substr(0, 200));
}

}  // namespace

PlanAnswer answer_plan(const PlanRequest& request, const PlanWatch& watch) {
  const double began_s = now_s();
  if (!request.target.empty())
    (void)refusals_of(Launch{}, request.target);  // refuses a target that there is none of
  const Subject subject = subject_of(request.subject);
  refuse_of_other_kinds(request, subject);
  PlanAnswer a;
  switch (subject.kind) {
    case PlanKind::model: a = answer_model(request, subject.name, watch); break;
    case PlanKind::script: a = answer_script(request, subject.name, watch); break;
    case PlanKind::config: a = answer_config(request, subject.name, watch); break;
  }
  for (size_t i = 0; i < a.notes.size(); ++i)  // readers of several rows say the same
    a.notes.erase(std::remove(a.notes.begin() + static_cast<std::ptrdiff_t>(i) + 1, a.notes.end(), a.notes[i]),
                  a.notes.end());
  a.subject = request.subject;
  a.seconds = now_s() - began_s;
  return a;
}

void put_beside(PlanAnswer& answer, const PlanAnswer& other) {
  answer.beside = BesideJob{other.subject, other.good(), other.tokens_per_s.value, other.peak_bytes};
}

}  // namespace heddle::advisor
