// heddle search --from SCRIPT: what would this job do here, and what near it would be better?
#include <cstdio>
#include <nlohmann/json.hpp>

#include "advisor/advice/better.h"
#include "advisor/answer/cluster_file.h"
#include "advisor/answer/fewest_beyond.h"
#include "advisor/answer/script_job.h"
#include "advisor/commands/search_options.h"
#include "advisor/script/rewrite_script.h"
#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/commands.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/plans/plan_page.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/planner/simulated_plans.h"
#include "heddle/search/explain.h"
#include "heddle/session/signals.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;
using search::Explanation;

constexpr int kMostTimes = 16;  // as many devices, where the script's do not do

Json json_of(const Explanation& x) {
  const plan::Degrees& l = x.launch.job.mesh;
  Json parts, memory, neighbours = Json::array();
  for (const search::StepPart& p : x.parts) parts[p.name] = p.seconds * x.scale.scale;
  for (const search::MemoryPart& p : x.memory) memory[p.name] = p.bytes;
  for (const search::Neighbour& n : x.neighbours)
    neighbours.push_back({{"change", n.change}, {"step_ratio", n.ratio}, {"fits", n.fits}, {"why", n.why}});
  return {{"devices", l.ranks()},
          {"device", x.launch.job.device.name},
          {"tp", l.tp},
          {"cp", l.cp},
          {"dp", l.dp},
          {"pp", l.pp},
          {"vpp", x.launch.job.chunks},
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
  check_plan_files(o);
  const advisor::ScriptJob job = advisor::read_script_job({o.from, o.cluster, o.devices, o.imbalance, o.set});
  const advisor::LaunchScript& script = job.script;
  const advisor::Calibration calibration = advisor::read_calibration(o.calibration);
  search::ExplainRequest request;
  // The job's own, for its plans too: a ratio of two times is that of their estimates.
  const search::ScaleInterval scale = calibration.interval(script.launch.job, search::estimate(script.launch.job));
  request.scale = [&](const search::Launch&) { return scale; };
  // One limit for the job and for what would be better.
  request.memory_bytes = o.memory.empty() ? search::usable_bytes(script.launch.job.device)
                                          : static_cast<double>(config::parse_bytes(o.memory));
  std::vector<Explanation> plans{search::explain(script.launch, request)};
  const Explanation given = plans.front();
  // The target is the script's own trainer, unless --emit names another.
  const std::string own = script.dialect == advisor::Dialect::megatron ? "megatron" : "mindspeed";
  const std::string target = o.emit.empty() ? own : o.emit;
  const session::Signals signals;
  session::Signals::answer("the best plan so far follows; asked again it ends without it", "nothing was found yet");
  // For Heddle its own layers are priced by lowering them, and its best plans counted.
  const bool heddle = target == "heddle";
  if (heddle && !script.others.sizes.empty())
    config_error("{}: heddle can't train this model: {} would be left out", script.place,
                 fmt::join(script.others.sizes, " "));
  std::unique_ptr<search::LoweredBlocks> blocks;
  const advisor::BetterAnswer found = [&] {
    observe::Doing doing("searching for a better plan");
    const auto stop = [] { return session::Signals::take().stop; };
    if (!heddle) return advisor::search_better(script.launch, target, request.memory_bytes, stop);
    search::Query query = advisor::query_beside(script.launch, target, request.memory_bytes);
    query.top = static_cast<int>(o.top);
    query.space.job.constants = std::make_shared<const std::vector<std::string>>(script.constants.settings);
    if (planner::backend_on(query.space.job.device).empty())
      config_error("{}: heddle can't run this: Heddle has no backend for {}", o.from, query.space.job.device.name);
    blocks = planner::lowered_blocks(query.space.job);
    if (!blocks)
      config_error("{}: heddle can't run this: {}", o.from, planner::refusals_of_model(query.space.job).front());
    query.space.job.software.lowered = blocks.get();
    advisor::BetterAnswer own;
    own.given_step_s = given.plan.exact.step_s;
    own.answer = planner::heddle_plans(
        query, [&](const search::Query& asked) { return search::search(asked, {}, stop); },
        [&] { doing.now("simulating the best"); });
    if (!own.answer.top.empty())
      own.best = advisor::better_of(script.launch, own.given_step_s, own.answer.top.front());
    return own;
  }();
  const std::optional<advisor::Better>& better = found.best;
  if (better) plans.insert(plans.begin(), search::explain(better->launch, request));
  for (search::Explanation& plan : plans) {
    plan.launch.memory_bytes = request.memory_bytes;
    if (!heddle) continue;
    plan.launch.lost = script.constants.lost;
    for (const std::string& flag : script.others.unknown)
      plan.launch.lost.push_back(flag + " (not known here: it may change the model)");
  }
  // A plan that does not fit is not written: of Heddle only a plan that was counted, of others not the script's own
  // job.
  const bool nothing_fits = !better && (heddle || !given.fits);
  // Plans may fit and not be the trainer's: then more devices are no answer.
  const bool none_at_all = nothing_fits && found.answer.top.empty();
  int fewest = 0;
  if (none_at_all) {
    observe::Doing doing("searching for the fewest devices");
    const search::Query query = advisor::query_beside(script.launch, target, request.memory_bytes);
    fewest = advisor::fewest_beyond(query, advisor::times_devices(query, kMostTimes),
                                    [] { return session::Signals::take().stop; });
  }
  const std::string nothing = fmt::format(
      "{} fits {}{}{}{}", heddle ? "no plan of Heddle's" : "nothing", observe::bytes_text(request.memory_bytes),
      found.answer.misfit.empty() ? "" : "; the nearest: ", found.answer.misfit,
      !none_at_all ? fmt::format(" of what {} could run", target)
      : fewest > 0 ? fmt::format("; {} {} are the fewest that train it", fewest, given.launch.job.device.name)
                   : fmt::format("; nor on 16 times as many {}", given.launch.job.device.name));
  if (nothing_fits && !o.emit.empty()) {
    fmt::print(stderr, "heddle: {}: {}; nothing is written\n", o.from, nothing);
    return kFailed;
  }
  const Explanation& best = plans.front();
  // For the same trainer the user's own script, with what changes.
  std::function<std::string(const search::Launch&)> rewrite;
  if (target == own)
    rewrite = [&](const search::Launch& plan) {
      return advisor::rewritten(job.text, o.from, job.context, script, plan);
    };
  const std::string emitted = write_plan_files(o, plans, rewrite);

  if (o.json) {
    Json json{{"script", o.from},
              {"dialect", advisor::name_of(script.dialect)},
              {"notes", script.notes},
              {"unknown_flags", script.others.unknown},
              {"undescribed_flags", script.others.sizes},
              {"unestimated_flags", script.others.pace},
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
    if (heddle) json["lost"] = best.launch.lost;
    if (nothing_fits) json["nothing_fits"] = {{"nearest", found.answer.misfit}, {"fewest_devices", fewest}};
    if (o.out.empty() && !emitted.empty()) json["emitted"] = emitted;
    say("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return nothing_fits ? kFailed : kDone;
  }
  if (!emitted.empty() && o.out.empty()) {
    say("{}", emitted);
    return kDone;
  }
  say("{}: a {} job\n", script.place, advisor::name_of(script.dialect));
  for (const std::string& line : job.unread()) say("  {}\n", line);
  for (const std::string& note : script.notes) say("  {}\n", note);
  say("\n{}", observe::plan_text(given, observe::describe_terminal(1)));
  say("\n{} plans of {} layouts that {} could run searched in {}: ",
      observe::grouped_text(static_cast<long long>(found.answer.plans + found.answer.passed_over)),
      observe::grouped_text(static_cast<long long>(found.answer.layouts)), target,
      observe::duration_text(found.answer.estimate_s + found.answer.exact_s));
  if (nothing_fits) {
    say("{}.\n", nothing);
  } else if (!better) {
    say("none is better.\n");
  } else {
    say("{}\n{}\n", heddle ? "the best is" : "better is", search::layout_line(best.launch.job));
    for (const std::string& change : better->changes) say("  {}\n", change);
    const observe::PlanFiguresInFull now = observe::figures_of(given), then = observe::figures_of(best);
    say("{} a step in place of {}, {} tokens/s a device in place of {}{}\n", then.step, now.step,
        then.tokens_per_s_per_device, now.tokens_per_s_per_device, given.fits ? "" : ", which does not fit");
    if (heddle)
      say("its program counted: {} live at the peak, {} reserved (`heddle inspect` says the same)\n",
          observe::bytes_text(better->plan.live_bytes), observe::bytes_text(better->plan.reserved_bytes));
  }
  if (heddle && !best.launch.lost.empty()) say("not carried over: {}\n", fmt::join(best.launch.lost, "; "));
  if (!o.explain.empty()) say("explained: {}\n", o.explain);
  if (!o.out.empty()) say("written: {}\n", o.out);
  return nothing_fits ? kFailed : kDone;
}

}  // namespace heddle::cli
