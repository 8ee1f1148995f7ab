// heddle search: the best plans for a model on a cluster.
#include "heddle/search/search.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "advisor/advice/better.h"
#include "advisor/answer/asked_model.h"
#include "advisor/answer/cluster_file.h"
#include "advisor/commands/search_options.h"
#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/prose.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/planner/simulated_plans.h"
#include "heddle/search/explain.h"
#include "heddle/search/plans/fewest.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/session/signals.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;
using search::Answer;
using search::Ranked;

std::string layout_text(const plan::Degrees& l, bool experts) {
  std::string text = fmt::format("tp {} cp {} pp {} dp {}", l.tp, l.cp, l.pp, l.dp);
  if (experts) text += fmt::format(" · ep {} etp {}", l.ep, l.etp);
  return text;
}

std::string schedule_text(const Ranked& r) {
  return r.job.chunks > 1 ? fmt::format("{} × {}", r.schedule, r.job.chunks) : r.schedule;
}

std::string keeping_text(const search::StageChoice& c) {
  return c.recompute + (c.keeping.offload ? "+offload" : "");
}

// 4 4 4 3 as 4*3 3.
template <class T>
std::string stages_text(const std::vector<T>& of_stage) {
  std::string text;
  for (size_t i = 0; i < of_stage.size();) {
    size_t same = i;
    while (same < of_stage.size() && of_stage[same] == of_stage[i]) ++same;
    text += fmt::format("{}{}", text.empty() ? "" : " ", of_stage[i]);
    if (same - i > 1) text += fmt::format("*{}", same - i);
    i = same;
  }
  return text;
}

std::vector<std::string> keeping_of_stages(const Ranked& r) {
  std::vector<std::string> of_stage;
  for (const search::StageChoice& c : r.by_stage) of_stage.push_back(keeping_text(c));
  return of_stage;
}

Json json_of(const Ranked& r, const search::ScaleInterval& in) {
  const double scale = in.scale;
  const plan::Degrees& l = r.job.mesh;
  const search::Waterfall& t = r.exact.time;
  return Json{{"tp", l.tp},
              {"cp", l.cp},
              {"pp", l.pp},
              {"vpp", r.job.chunks},
              {"dp", l.dp},
              {"ep", l.ep},
              {"etp", l.etp},
              {"schedule", r.schedule},
              {"microbatch", r.job.microbatch},
              {"context", word_of(r.job.context)},
              {"context_inner", r.job.context_inner},
              {"recompute", r.recompute},
              {"offload", r.job.software.offload_activations},
              {"dispatcher", once_a_node(r.job) ? "node" : "plain"},
              {"by_stage", keeping_of_stages(r)},
              {"optimizer", word_of(r.job.residency.optimizer)},
              {"master", word_of(r.job.residency.master)},
              {"weights", r.job.residency.weights.empty() ? "device" : "host"},
              {"gradients", r.job.residency.gradients.empty() ? "device" : "host"},
              {"shard", word_of(r.job.sharding.shard)},
              {"shard_ranks", r.job.sharding.ranks},
              {"replicas", search::replicas_word(r.job.exchange.replicas)},
              {"layers", r.exact.layers},
              {"step_s", r.exact.step_s * scale},
              {"step_low_s", r.exact.step_s * in.low},
              {"step_high_s", r.exact.step_s * in.high},
              {"p99_step_s", r.p99_step_s * scale},
              {"simulated_step_s", r.simulated_step_s},
              {"tokens_per_s_per_device", r.tokens_per_s_per_device / scale},
              {"model_flops_utilization", r.model_flops_utilization / scale},
              {"peak_bytes", r.exact.peak_bytes},
              {"host_bytes", r.exact.host_bytes},
              {"program_live_bytes", r.live_bytes},
              {"program_reserved_bytes", r.reserved_bytes},
              {"exposed_communication_s", r.exact.exposed_s * scale},
              {"bubble_s", r.exact.time.bubble * scale},
              {"estimated_step_s", r.estimate.step_s * scale},
              {"imbalance_p50", r.job.imbalance},
              {"imbalance_p99", r.job.memory_imbalance},
              {"waterfall_s", Json{{"products", t.products * scale},
                                   {"attention", t.attention * scale},
                                   {"traffic", t.traffic * scale},
                                   {"launches", t.launches * scale},
                                   {"tensor", t.tensor * scale},
                                   {"exchange", t.exchange * scale},
                                   {"context", t.context * scale},
                                   {"pipeline", t.pipeline * scale},
                                   {"data", t.data * scale},
                                   {"bubble", t.bubble * scale},
                                   {"optimizer", t.optimizer * scale},
                                   {"jitter", t.jitter * scale}}}};
}

Json json_of(const Answer& a, const search::ScaleInterval& in) {
  Json plans = Json::array();
  for (const Ranked& r : a.top) plans.push_back(json_of(r, in));
  return Json{{"plans", plans},
              {"estimated", a.plans},
              {"layouts", a.layouts},
              {"fitting", a.fitting},
              {"passed_over", a.passed_over},
              {"timed_exactly", a.timed},
              {"timed_by_stage", a.by_stage},
              {"estimate_s", a.estimate_s},
              {"exact_s", a.exact_s},
              {"threads", a.threads},
              {"estimates_per_s_per_core", a.plans_per_s_per_core()},
              {"memory_bytes", a.memory_bytes},
              {"stopped", a.stopped},
              {"calibration_scale", in.scale},
              {"calibration_from", in.from},
              {"not_considered", search::not_considered()}};
}

void print(const Answer& a, const search::ScaleInterval& in) {
  const double scale = in.scale;
  if (a.top.empty()) {
    say("nothing fits{}{}\n", a.misfit.empty() ? "" : "; the nearest: ", a.misfit);
    return;
  }
  const bool experts = a.top.front().job.shape.moe_blocks() > 0;
  observe::Table table({{"", observe::Align::right},
                        {"layout"},
                        {"schedule"},
                        {"mbs", observe::Align::right},
                        {"recompute"},
                        {"step", observe::Align::right},
                        {"tokens/s/device", observe::Align::right},
                        {"MFU", observe::Align::right},
                        {"memory", observe::Align::right},
                        {"exposed", observe::Align::right},
                        {"bubble", observe::Align::right},
                        {"step p99", observe::Align::right}});
  int rank = 0;
  for (const Ranked& r : a.top) {
    const observe::PlanFigures f = observe::figures_of(r.job, r.exact, scale);
    table.row(
        {fmt::format("{}", ++rank), layout_text(r.job.mesh, experts), schedule_text(r),
         fmt::format("{}", r.job.microbatch),
         r.by_stage.empty() ? keeping_text({r.recompute, {{}, r.job.software.offload_activations}}) : "by stage",
         f.step, f.tokens_per_s_per_device, f.utilization,
         r.reserved_bytes > 0 ? observe::bytes_text(r.reserved_bytes) : f.peak, f.exposed, f.bubble,
         observe::duration_text(r.p99_step_s * scale)});
  }
  say("{}", table.text(observe::describe_terminal(1)));
  say("\nlayers of the stages of 1: {}\n", stages_text(a.top.front().exact.layers));
  rank = 0;
  for (const Ranked& r : a.top) {
    ++rank;
    if (!r.by_stage.empty()) say("recomputed by the stages of {}: {}\n", rank, stages_text(keeping_of_stages(r)));
  }
  rank = 0;
  for (const Ranked& r : a.top) {
    ++rank;
    if (const std::string home = search::text_of(r.job.residency); !home.empty())
      say("the state of {}: {}{}\n", rank, home,
          r.exact.host_bytes > 0
              ? fmt::format("; {} of a rank on the host", observe::bytes_text(r.exact.host_bytes))
              : "");
  }
  rank = 0;
  for (const Ranked& r : a.top) {
    ++rank;
    if (const std::string cut = search::text_of(r.job.sharding); !cut.empty()) say("{} has {}\n", rank, cut);
  }
  rank = 0;
  for (const Ranked& r : a.top) {
    ++rank;
    if (replica_slots(r.job) > 0 && r.job.mesh.ep > 1)
      say("replicas of hot experts with {}: {}\n", rank, search::replicas_word(r.job.exchange.replicas));
  }
  rank = 0;
  for (const Ranked& r : a.top) {
    ++rank;
    if (r.simulated_step_s > 0)
      say("the program of {} simulated: a step of {}\n", rank, observe::duration_text(r.simulated_step_s));
  }
  if (const Ranked& first = a.top.front(); first.reserved_bytes > 0)
    say("the program of 1 counted: {} live at the peak, {} reserved (`heddle inspect` says the same)\n",
        observe::bytes_text(first.live_bytes), observe::bytes_text(first.reserved_bytes));
  if (experts)
    print_prose(fmt::format(
        "rows of the fullest expert rank over the mean: {:.2f} half of the time, {:.2f} at the 99th percentile "
        "(memory holds that)",
        a.top.front().job.imbalance, a.top.front().job.memory_imbalance));
  print_prose(fmt::format(
      "{} plans of {} layouts estimated, {} passed over as too slow, in {} on {} cores, {:.0f} a second and core; "
      "{} fit {}; {} timed exactly, {} also by stage, in {}",
      observe::grouped_text(static_cast<long long>(a.plans)),
      observe::grouped_text(static_cast<long long>(a.layouts)),
      observe::grouped_text(static_cast<long long>(a.passed_over)), observe::duration_text(a.estimate_s), a.threads,
      a.plans_per_s_per_core(), observe::grouped_text(static_cast<long long>(a.fitting)),
      observe::bytes_text(a.memory_bytes), a.timed, a.by_stage, observe::duration_text(a.exact_s)));
  print_prose(
      fmt::format("times are the closed forms' × {:.3f}, and 80 % of unseen runs took {:.2f} to {:.2f} of that; "
                  "from {}",
                  scale, in.low / scale, in.high / scale, in.from));
  print_prose(fmt::format("not considered: {}", fmt::join(search::not_considered(), "; ")));
}

// Writes what --explain and --emit ask for, and returns the latter's text.
std::string write_plans(const SearchOptions& o, const Answer& a, const search::ScaleInterval& in,
                        const advisor::SearchedModel& model) {
  search::ExplainRequest request;
  request.scale = [&](const search::Launch&) { return in; };
  request.memory_bytes = a.memory_bytes;
  std::vector<search::Explanation> plans;
  if (!o.explain.empty() || !o.emit.empty())
    for (const Ranked& r : a.top) {
      search::Launch launch = search::launch_of(r);
      launch.memory_bytes = a.memory_bytes;
      if (!model.unread.empty()) launch.lost = {"all but the sizes of the model: " + model.unread};
      plans.push_back(search::explain(launch, request));
    }
  return plans.empty() ? "" : write_plan_files(o, plans);
}

int search_plans(const SearchOptions& o) {
  if (!o.from.empty()) return search_from(o);
  for (const auto& [flag, given] : {std::pair("--model", !o.model.empty()),
                                    {"--cluster", !o.cluster.empty()},
                                    {"--devices", o.devices > 0},
                                    {"--global-batch", o.global_batch > 0},
                                    {"--sequence", o.sequence > 0}})
    if (!given) config_error("search: {} is needed, or --from SCRIPT", flag);
  check_plan_files(o);
  search::Query query;
  search::Job& job = query.space.job;
  const advisor::SearchedModel model = advisor::read_model(o.model, o.sequence);
  job.shape = model.shape;
  job.constants = model.constants;
  job.device = advisor::read_cluster(o.cluster);
  const std::optional<cost::Precision> precision = cost::precision_named(o.precision);
  HEDDLE_CHECK(precision, "a precision that the command line let pass");
  job.precision = *precision;
  job.global_batch = static_cast<int>(o.global_batch);
  job.sequence = static_cast<double>(o.sequence);
  for (const std::string& each : o.restrict) advisor::read_restriction(each, query.space.restriction, job);
  const bool heddle = o.heddle || o.emit == "heddle";
  if (heddle && !o.emit.empty() && o.emit != "heddle")
    config_error("search: --heddle with --emit {}, accepted: --emit heddle", o.emit);
  if (heddle || !o.emit.empty()) advisor::restrict_to(heddle ? "heddle" : o.emit, query.space.restriction, job);
  // Layers of Heddle itself are lowered; a plan written as its configuration is counted and simulated.
  std::unique_ptr<search::LoweredBlocks> blocks;
  if (heddle) blocks = planner::lowered_blocks(job);
  if (o.heddle && !blocks)
    config_error("search: heddle can't run this: {}", planner::refusals_of_model(job).front());
  const bool counted = blocks && o.emit == "heddle" && !planner::backend_on(job.device).empty();
  job.software.lowered = blocks.get();
  query.space.devices = static_cast<int>(o.devices);
  query.space.routing.spread = o.routing;
  if (!o.memory.empty()) query.memory_bytes = static_cast<double>(config::parse_bytes(o.memory));
  query.top = static_cast<int>(o.top);
  query.short_list = std::max(query.top, static_cast<int>(o.short_list));
  query.threads = static_cast<int>(o.threads);
  // A release takes what it lacks from the nearest ones that were measured.
  const advisor::Calibration calibration = advisor::read_calibration(o.calibration);

  const session::Signals signals;
  session::Signals::answer("the best plans so far follow; asked again it ends without them",
                           "nothing was found yet");
  const auto find = [&]() -> std::optional<search::Fewest> {
    observe::Doing doing("searching");
    std::string on;  // so many devices
    const auto run = [&](const search::Query& asked) {
      return search::search(
          asked,
          [&](size_t done, size_t of, uint64_t plans) {
            doing.now(fmt::format("searching{}, {} plans so far", on,
                                  observe::grouped_text(static_cast<long long>(plans))),
                      static_cast<double>(done) / static_cast<double>(of));
          },
          [] { return session::Signals::take().stop; });
    };
    const auto whole = [&](const search::Query& asked) {
      if (counted) return planner::heddle_plans(asked, run, [&] { doing.now("simulating the best"); });
      Answer answer = run(asked);
      if (blocks && !answer.top.empty())
        planner::simulate_ways(answer, asked, [](const Ranked& plan, double memory_bytes) {
          return search::fits(plan.exact, plan.job, memory_bytes);
        });
      return answer;
    };
    if (!o.fewest) return search::Fewest{query.space.devices, whole(query)};
    return search::fewest_devices(query, run, whole, [&](int devices) { on = fmt::format(" on {}", devices); });
  };
  std::optional<search::Fewest> found = find();
  if (!found) found.emplace();  // nothing fits
  const Answer& answer = found->answer;
  const search::ScaleInterval in = answer.top.empty()
                                       ? search::ScaleInterval{}
                                       : calibration.interval(answer.top.front().job, answer.top.front().estimate);
  const std::string emitted = write_plans(o, answer, in, model);
  if (o.json) {
    Json json = json_of(answer, in);
    if (o.fewest) json["fewest"] = Json{{"devices", found->devices}, {"searches", found->searches}};
    if (!emitted.empty() && o.out.empty()) json["emitted"] = emitted;
    say("{}\n", json.dump(2));
  } else if (!emitted.empty() && o.out.empty()) {
    say("{}", emitted);
  } else {
    if (answer.stopped) say("stopped early, the best so far:\n\n");
    if (o.fewest && !answer.top.empty() && answer.stopped) {
      say("{} {} train it; fewer were not tried\n\n", found->devices, job.device.name);
    } else if (o.fewest && !answer.top.empty())
      say("{} {} are the fewest that train it, by {} searches\n\n", found->devices, job.device.name,
          found->searches);
    print(answer, in);
  }
  return answer.top.empty() ? kFailed : kDone;
}

Option& add_count(Command& command, const char* flag, int64_t& into, const char* what, int64_t most) {
  return command.option(flag, into, what).from(int64_t{1}, most);
}

}  // namespace

void add_search(Commands& all) {
  auto [command, options] = add_command(
      all, "search", "The best plans for a model on a cluster, or what is better than another trainer's job",
      search_plans);
  command
      .option("--from", options.from,
              "A launch script of Megatron-LM or MindSpeed, or - for the standard input; read, never run")
      .called("SCRIPT");
  command.option("--model", options.model, "A published model by name, or a folder with its config.json")
      .excludes("--from");
  command.option("--cluster", options.cluster, "An accelerator such as H800, or a TOML file of a cluster")
      .called("NAME|FILE");
  add_count(command, "--devices", options.devices, "Accelerators", 1 << 20);
  command
      .option("--fewest", options.fewest,
              "The fewest devices on which the model trains at all, whole nodes or parts of one; --devices at most")
      .excludes("--from");
  add_count(command, "--global-batch", options.global_batch, "Sequences of a step", 1 << 24).excludes("--from");
  add_count(command, "--sequence", options.sequence, "Tokens of a sequence", 100'000'000).excludes("--from");
  command.option("--precision", options.precision, "Of the matrix products")
      .among({"bf16", "fp16", "fp8", "mxfp8", "block8", "nvfp4"})
      .excludes("--from");
  command.option("--memory", options.memory, "Of a device, such as 80GiB; else 92 % of the accelerator's")
      .called("BYTES");
  command
      .option("--routing", options.routing,
              "Relative deviation of the experts' loads; 0: forced balance, natural routing is near 0.13")
      .from(0.0, 10.0)
      .excludes("--from");
  command
      .option("--restrict", options.restrict,
              "Values of an axis, such as tp=1,2 or schedule=dual_pipe, or a TOML file; may be given again")
      .called("NAME=VALUES")
      .excludes("--from");
  command.option("--calibration", options.calibration, "Scalars to use in place of the built-in ones")
      .called("FILE");
  add_count(command, "--top", options.top, "Plans shown", 1000).excludes("--from");
  add_count(command, "--short-list", options.short_list, "Plans timed action by action", 100'000)
      .excludes("--from");
  add_count(command, "--threads", options.threads, "In place of one a core", 4096).excludes("--from");
  command
      .option("--imbalance", options.imbalance,
              "Of the script's job: rows of the fullest expert rank over the mean")
      .from(1.0, 100.0)
      .needs("--from");
  command.option("--set", options.set, "A variable that the script's environment sets; may be given again")
      .called("NAME=VALUE")
      .needs("--from");
  command.option("--explain", options.explain, "Write the explanation as one HTML page").called("FILE");
  command.option("--emit", options.emit, "Print the best plan as heddle (TOML), megatron or mindspeed (bash)")
      .among({"heddle", "megatron", "mindspeed"});
  command
      .option("--heddle", options.heddle,
              "Heddle trains: its own layers, and where its state may lie; estimates alone, --emit heddle counts")
      .excludes("--from");
  command.option("--out", options.out, "Where --emit writes to; standard output").called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
