// heddle search --from SCRIPT: what would this job do here, and what near it would be better?
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/search_files.h"
#include "heddle/cli/search_options.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/plans/plan_page.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/simulated_plans.h"
#include "heddle/search/better.h"
#include "heddle/search/explain.h"
#include "heddle/search/launch/emit.h"
#include "heddle/search/launch/launch_script.h"
#include "heddle/search/launch/rewrite_script.h"
#include "heddle/session/signals.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;
using search::Explanation;

search::ScriptContext context_of(const SearchOptions& o) {
  search::ScriptContext context;
  context.devices = static_cast<int>(o.devices);
  context.imbalance = o.imbalance;
  if (!o.cluster.empty()) context.device = read_cluster(o.cluster);
  for (const std::string& each : o.set) {
    const size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0)
      config_error("--set {}: accepted: NAME=VALUE", each.substr(0, 60));
    context.variables[each.substr(0, equals)] = each.substr(equals + 1);
  }
  return context;
}

Json json_of(const Explanation& x) {
  const search::Layout& l = x.launch.job.layout;
  Json parts, memory, neighbours = Json::array();
  for (const search::StepPart& p : x.parts) parts[p.name] = p.seconds * x.scale.scale;
  for (const search::MemoryPart& p : x.memory) memory[p.name] = p.bytes;
  for (const search::Neighbour& n : x.neighbours)
    neighbours.push_back({{"change", n.change}, {"step_ratio", n.ratio}, {"fits", n.fits}, {"why", n.why}});
  return {{"devices", l.devices},
          {"device", x.launch.job.device.name},
          {"tp", l.tp},
          {"cp", l.cp},
          {"dp", l.dp},
          {"pp", l.pp},
          {"vpp", l.vpp},
          {"ep", l.ep},
          {"etp", l.etp},
          {"microbatch", x.launch.job.microbatch},
          {"schedule", x.launch.schedule},
          {"layout", x.launch.layout},
          {"step_s", x.step_s()},
          {"step_low_s", x.plan.exact.step_s * x.scale.low},
          {"step_high_s", x.plan.exact.step_s * x.scale.high},
          {"tokens_per_s_per_device", search::tokens_per_s_per_device(x.launch.job, x.step_s())},
          {"peak_bytes", x.peak_bytes()},
          {"fits", x.fits},
          {"bound_by", x.binding},
          {"bound_why", x.binding_why},
          {"step_parts_s", parts},
          {"memory_bytes", memory},
          {"neighbours", neighbours}};
}

}  // namespace

int search_from(const SearchOptions& o) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  check_plan_files(o);
  const std::string text = o.from == kStandardInput ? standard_input(kMostBytes) : read_file(o.from, kMostBytes);
  const search::ScriptContext context = context_of(o);
  const search::LaunchScript script = search::read_launch_script(text, o.from, context);
  const search::Calibration calibration = read_calibration(o.calibration);
  search::ExplainRequest request;
  request.calibration = &calibration;
  // One limit for the job and for what would be better.
  request.memory_bytes = o.memory.empty() ? search::usable_bytes(script.launch.job.device)
                                          : static_cast<double>(config::parse_bytes(o.memory));
  std::vector<Explanation> plans{search::explain(script.launch, request)};
  const Explanation given = plans.front();
  // What its own trainer can run, unless --emit names another.
  const std::string own = script.dialect == search::Dialect::megatron ? "megatron" : "mindspeed";
  const std::string target = o.emit.empty() ? own : o.emit;
  const session::Signals signals;
  session::Signals::answer("the best plan so far follows; asked again it ends without it", "nothing was found yet");
  // Of Heddle its own layers are priced by lowering them, and its best plans counted.
  const bool heddle = target == "heddle";
  std::unique_ptr<search::LoweredBlocks> blocks;
  const search::BetterAnswer found = [&] {
    observe::Doing doing("searching for a better plan");
    const auto stop = [] { return session::Signals::take().stop; };
    if (!heddle) return search::search_better(script.launch, target, request.memory_bytes, stop);
    search::Query query = search::query_beside(script.launch, target, request.memory_bytes);
    query.top = static_cast<int>(o.top);
    if (search::heddle_backend(query.space.job.device).empty())
      config_error("{}: heddle can't run this: Heddle has no backend for {}", o.from, query.space.job.device.name);
    blocks = planner::lowered_blocks(query.space.job);
    if (!blocks)
      config_error("{}: heddle can't run this: {}", o.from, planner::refusals_of_model(query.space.job).front());
    query.space.job.software.lowered = blocks.get();
    search::BetterAnswer own;
    own.given_step_s = given.plan.exact.step_s;
    own.answer = planner::heddle_plans(
        query, [&](const search::Query& asked) { return search::search(asked, {}, stop); },
        [&] { doing.now("simulating the best"); });
    if (!own.answer.top.empty())
      own.best = search::better_of(script.launch, own.given_step_s, own.answer.top.front());
    return own;
  }();
  const std::optional<search::Better>& better = found.best;
  if (better) plans.insert(plans.begin(), search::explain(better->launch, request));
  for (search::Explanation& plan : plans) plan.launch.memory_bytes = request.memory_bytes;
  // What does not fit is not written: only a plan of Heddle's that was counted.
  if (heddle && !better)
    config_error("{}: no plan of Heddle's fits {}{}{}", o.from, observe::bytes_text(request.memory_bytes),
                 found.answer.misfit.empty() ? "" : "; the nearest: ", found.answer.misfit);
  const Explanation& best = plans.front();
  // For the same trainer the user's own script, with what changes.
  std::function<std::string(const search::Launch&)> rewrite;
  if (target == own)
    rewrite = [&](const search::Launch& plan) { return search::rewritten(text, o.from, context, script, plan); };
  const std::string emitted = write_plan_files(o, plans, rewrite);

  if (o.json) {
    Json json{{"script", o.from},
              {"dialect", search::name_of(script.dialect)},
              {"notes", script.notes},
              {"unknown_flags", script.unknown},
              {"job", json_of(given)},
              {"changes", better ? better->changes : std::vector<std::string>{}},
              {"step_ratio", better ? better->ratio : 1},
              {"searched", found.answer.plans},
              {"best", json_of(best)}};
    if (heddle) {
      json["best"]["simulated_step_s"] = better->plan.simulated_step_s;
      json["best"]["program_live_bytes"] = better->plan.live_bytes;
      json["best"]["program_reserved_bytes"] = better->plan.reserved_bytes;
    }
    if (o.out.empty() && !emitted.empty()) json["emitted"] = emitted;
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return kDone;
  }
  if (!emitted.empty() && o.out.empty()) {
    fmt::print("{}", emitted);
    return kDone;
  }
  fmt::print("{}:{}: a {} job\n", o.from, script.line, search::name_of(script.dialect));
  for (const std::string& note : script.notes) fmt::print("  {}\n", note);
  if (!script.unknown.empty()) fmt::print("  flags not known here: {}\n", fmt::join(script.unknown, " "));
  fmt::print("\n{}", observe::plan_text(given, observe::describe_terminal(1)));
  fmt::print("\n{} plans of {} layouts that {} could run searched in {}: ",
             observe::grouped_text(static_cast<long long>(found.answer.plans)),
             observe::grouped_text(static_cast<long long>(found.answer.layouts)), target,
             observe::duration_text(found.answer.estimate_s + found.answer.exact_s));
  if (!better) {
    fmt::print("none is better.\n");
  } else {
    fmt::print("{}\n{}\n", heddle ? "the best is" : "better is", search::layout_line(best.launch.job));
    for (const std::string& change : better->changes) fmt::print("  {}\n", change);
    const observe::PlanFiguresInFull now = observe::figures_of(given), then = observe::figures_of(best);
    fmt::print("{} a step in place of {}, {} tokens/s a device in place of {}{}\n", then.step, now.step,
               then.tokens_per_s_per_device, now.tokens_per_s_per_device, given.fits ? "" : ", which does not fit");
    if (heddle)
      fmt::print("its program counted: {} live at the peak, {} reserved (`heddle inspect` says the same)\n",
                 observe::bytes_text(better->plan.live_bytes), observe::bytes_text(better->plan.reserved_bytes));
  }
  if (!o.explain.empty()) fmt::print("explained: {}\n", o.explain);
  if (!o.out.empty()) fmt::print("written: {}\n", o.out);
  return kDone;
}

}  // namespace heddle::cli
