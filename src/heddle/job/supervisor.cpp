#include "heddle/job/supervisor.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/failure.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/files/random_id.h"
#include "heddle/base/hash.h"
#include "heddle/base/say.h"
#include "heddle/job/hosts/probe.h"
#include "heddle/job/launcher_environment.h"
#include "heddle/session/ranks/stall_lines.h"
#include "heddle/session/signals.h"

namespace heddle::job {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kReach_s = 10;  // in which a host answers
constexpr double kPoll_s = 0.05;
constexpr double kAfterFailure_s = 3;  // from the first rank's failure to the end of all by force
constexpr double kProbe_s = 60;
constexpr double kEnd_s = 15;  // from the last rank's end to its launcher's

// The configuration of a job whose layout the number of ranks decides.
config::RunConfig config_of(const JobOptions& options, int ranks) {
  std::vector<std::string> set = options.set;
  set.push_back(fmt::format("mesh.ranks={}", ranks));
  return config::read_run_config(options.config, set);
}

session::HeldFolder held_folder(const JobOptions& options, int ranks) {
  const config::RunConfig config = config_of(options, ranks);
  if (options.resume && !session::path_of_existing_run(config).empty()) return session::existing_run_folder(config);
  return session::new_run_folder(config);
}

int wanted_ranks(const JobOptions& options) {
  if (options.ranks > 0) return options.ranks;
  if (options.spares >= static_cast<int>(options.hosts.size()))
    config_error("--spares {}: there are {} hosts", options.spares, options.hosts.size());
  std::vector<Host> used(options.hosts.begin(), options.hosts.end() - options.spares);
  return slots_of(used);
}

std::string hosts_text(const std::vector<Host>& hosts) {
  return fmt::format("{}", fmt::join(names_of(hosts), ", "));
}

}  // namespace

Supervisor::Supervisor(JobOptions options, Tell tell)
    : options_(std::move(options)),
      tell_(std::move(tell)),
      launcher_(launcher_named(options_.by)),
      pool_(options_.hosts),
      persistence_(options_.attempts, options_.pause_s, options_.longest_pause_s),
      held_(held_folder(options_, wanted_ranks(options_))),
      journal_(held_.folder.job()),
      alarms_(held_.folder.alarms()) {
  held_.folder.path = fs::canonical(held_.folder.path).string();  // ranks may stand elsewhere
  journal_ = Journal(held_.folder.job());
  alarms_ = AlarmTail(held_.folder.alarms());
  summary_.folder = held_.folder.path;
  fence_.folder = held_.folder.path;
  if (const std::optional<Fence> before = open_fence(fence_.folder)) fence_.number = before->number;
  for (const std::string& warning : held_.warnings) tell_("warning: " + warning);
  adopt_orphans();
  if (config_of(options_, wanted()).plan.snapshot_every == 0) return;
  // One host alone has nobody to reach.
  const std::string listen = options_.hosts.size() < 2 ? "" : options_.listen.empty() ? "default" : options_.listen;
  agents_ = std::make_unique<Agents>(AgentsOptions{options_.program, held_.folder.path, options_.shell, listen},
                                     launcher_, journal_, tell_);
}

Supervisor::~Supervisor() {
  agents_.reset();
  standby_.end();
  end_descendants();
  remove_session_folders(held_.folder.path);
}

int Supervisor::wanted() const { return wanted_ranks(options_); }

void Supervisor::lose(const std::string& host, const std::string& why, bool answers) {
  pool_.lost(host, now_s(), answers);
  if (agents_) agents_->lose(host);
  tell_(fmt::format("{} is out: {}", host, why));
  journal_.add("lost", {{"host", host}, {"why", why}});
}

// Asks every host, those that are out too. Whether any is up.
bool Supervisor::ask_hosts() {
  Reach reach(options_.hosts, launcher_, options_.shell, kReach_s);
  while (!reach.poll()) {
    if (session::Signals::take().stop) asked_ = true;
    if (asked_) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto was_out = names_of(pool_.out());
  for (const std::string& host : reach.answered()) {
    const bool out = std::find(was_out.begin(), was_out.end(), host) != was_out.end();
    if (!pool_.answers(host, now_s()) || !out) continue;
    tell_(fmt::format("{} answers again", host));
    journal_.add("back", {{"host", host}});
  }
  for (const std::string& host : reach.silent()) {
    if (std::find(was_out.begin(), was_out.end(), host) == was_out.end()) lose(host, "it does not answer", false);
  }
  return !pool_.up().empty();
}

// As the user has it where all ranks have a place, else the best layout of those that have.
std::optional<JobPlan> Supervisor::plan_for(const std::vector<Host>& hosts) {
  if (slots_of(hosts) >= wanted())
    return JobPlan{hosts, {wanted(), {fmt::format("mesh.ranks={}", wanted())}, 0, 0}};
  const std::optional<Layout> layout =
      layout_for(options_.config, options_.set, hosts, options_.profile, options_.choose_s);
  if (!layout) return std::nullopt;
  JobPlan plan{{}, *layout};
  int left = layout->ranks;
  for (Host host : hosts) {
    if (left == 0) break;
    host.slots = std::min(host.slots, left);
    left -= host.slots;
    plan.hosts.push_back(std::move(host));
  }
  return plan;
}

// Waits for hosts where none answers. None: there are none, or nothing can be done with those that there are.
std::optional<JobPlan> Supervisor::next_plan() {
  constexpr double kBetween_s = 1;
  for (const double until_s = now_s() + options_.wait_hosts_s; !asked_;) {
    if (ask_hosts()) {
      if (std::optional<JobPlan> plan = plan_for(pool_.with_slots(wanted()))) return plan;
      summary_.reason =
          fmt::format("no layout of {} can train this model with the batch of all ranks", hosts_text(pool_.up()));
    } else if (!asked_) {
      summary_.reason = fmt::format("none of the {} hosts answers", options_.hosts.size());
    }
    if (now_s() > until_s) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(kBetween_s));
    if (session::Signals::take().stop) asked_ = true;
  }
  return std::nullopt;
}

std::vector<std::string> Supervisor::words_of(const JobPlan& plan) const {
  Start start;
  start.hosts = plan.hosts;
  start.shell = options_.shell;
  start.variables = {kFenceVariable};
  start.more = options_.more;
  start.program = {options_.program, "train", options_.config};
  const auto set = [&](const std::string& setting) {
    start.program.push_back("--set");
    start.program.push_back(setting);
  };
  for (const std::string& setting : options_.set) set(setting);
  for (const std::string& setting : plan.layout.set) set(setting);
  set("output=" + held_.folder.path);
  std::error_code ignored;
  if (fs::exists(held_path(held_.folder.config()), ignored)) start.program.push_back("--resume");
  start.program.insert(start.program.end(), options_.flags.begin(), options_.flags.end());
  if (options_.json) start.program.push_back("--json");
  return launcher_.words(start);
}

// Ends what is left of a generation; agents and a standby outlive it.
void Supervisor::end_ranks() {
  std::vector<pid_t> spared = agents_ ? agents_->processes() : std::vector<pid_t>{};
  if (standby_.waits()) spared.push_back(standby_.process());
  end_descendants(spared);
}

std::unique_ptr<Ranks> Supervisor::start_ranks(const JobPlan& plan, Fence fence) const {
  const Environment environment = launcher_environment(held_.folder.path, fence.number);
  return std::make_unique<Ranks>(std::move(fence), words_of(plan), environment, !options_.json,
                                 launcher_.end_signal);
}

// Once a generation trains, ranks stand by for the next.
void Supervisor::look_for_standby(const JobPlan& plan) {
  if (!options_.standby || !running_ || growing_ || asked_ || !standby_.is_wanted(journal_)) return;
  Fence next = fence_;
  ++next.number;
  next.token = random_id();
  journal_.add("standby", {{"generation", next.number}});
  standby_.begin(plan, start_ranks(plan, next));
}

// Hosts that are out may have come back: with them the job is laid out anew, from the checkpoint that ends this
// generation.
void Supervisor::look_for_hosts(const JobPlan& plan, Ranks& ranks) {
  if (!options_.grow || !running_ || growing_ || asked_ || plan.layout.ranks >= wanted()) return;
  if (!reach_) {
    if (now_s() - checked_s_ < options_.look_s || pool_.out().empty()) return;
    checked_s_ = now_s();
    reach_ = std::make_unique<Reach>(pool_.out(), launcher_, options_.shell, kReach_s);
  }
  if (!reach_->poll()) return;
  bool any = false;
  for (const std::string& host : reach_->answered()) {
    if (!pool_.answers(host, now_s())) continue;
    any = true;
    tell_(fmt::format("{} answers again", host));
    journal_.add("back", {{"host", host}});
  }
  reach_.reset();
  if (!any) return;
  const std::optional<JobPlan> larger = plan_for(pool_.with_slots(wanted()));
  if (!larger || larger->layout.ranks <= plan.layout.ranks) return;
  tell_(fmt::format("{} ranks instead of {}, after the current step", larger->layout.ranks, plan.layout.ranks));
  growing_ = true;
  ranks.signal(SIGUSR2);
}

// A host on which a rank is slow makes way for a spare, where one answers: from the checkpoint that ends this
// generation. Without a spare it stays, for a slow host is better than none.
void Supervisor::look_for_slow(const JobPlan& plan, Ranks& ranks) {
  if (!options_.replace_slow || growing_ || asked_) return;
  while (const std::optional<SlowRankAlarm> slow = alarms_.next(fence_.number)) {
    const std::optional<std::string> host = host_of_rank(plan.hosts, slow->rank);
    std::vector<Host> others = pool_.up();
    std::erase_if(others, [&](const Host& other) { return other.name == host; });
    const bool spare = host && slots_of(others) >= plan.layout.ranks;
    journal_.add("slow", {{"rank", slow->rank}, {"host", host.value_or("")}, {"why", slow->why}, {"spare", spare}});
    if (!spare) continue;
    lose(*host, slow->why, true);
    tell_("a spare replaces it after the current step");
    growing_ = true;
    ranks.signal(SIGUSR2);
    return;
  }
}

// A host on which no agent answers keeps no copies, and no checkpoint is whole without its ranks'. The job goes on
// without it, from the checkpoint that ends this generation. The only one stays.
void Supervisor::look_for_agents(const JobPlan& plan, Ranks& ranks) {
  if (!agents_) return;
  for (const std::string& host : agents_->look()) {
    if (growing_ || asked_ || plan.hosts.size() < 2) continue;
    lose(host, "its agent hung, and no other one started", true);
    growing_ = true;
    ranks.signal(SIGUSR2);
  }
}

// Why all must be ended now; "": they need not.
std::string Supervisor::why_force(const std::vector<comm::RankStatus>& standing,
                                  const std::vector<std::string>& said) {
  constexpr double kUnknown_s = 1800, kSlack = 1.5, kMore_s = 20;
  // Ranks take their pages away at the end; what is left to do then is nothing that takes long.
  if (!standing.empty()) seen_s_ = now_s();
  if (standing.empty() && seen_s_ > 0 && now_s() - seen_s_ > kEnd_s)
    return fmt::format("the launcher has not ended {:.0f} s after all ranks", kEnd_s);
  movement_.see(standing, now_s());
  double patience_s = 0;
  bool any_failed = false;
  for (const comm::RankStatus& rank : standing) {
    any_failed |= rank.state == comm::RankState::failed;
    patience_s = std::max(patience_s, static_cast<double>(rank.patience_ms) * 1e-3);
  }
  if (any_failed && failed_s_ == 0) failed_s_ = now_s();
  // The others would only miss it.
  if (!any_failed && std::any_of(said.begin(), said.end(), [](const auto& line) { return killed_task(line) >= 0; }))
    return "failed";
  if (failed_s_ > 0 && now_s() - failed_s_ > kAfterFailure_s) return "failed";
  const double idle_s = movement_.idle_s(now_s());
  const double limit_s = kSlack * (patience_s > 0 ? patience_s : kUnknown_s) + kMore_s;
  return idle_s > limit_s ? fmt::format("no rank has moved for {:.0f} s", idle_s) : "";
}

void Supervisor::look_for_steps(const std::vector<comm::RankStatus>& standing) {
  if (running_ || standing.empty()) return;
  const comm::RankStatus& lead = standing.front();
  if (lead.first_step <= 0 || lead.step <= lead.first_step) return;
  running_ = true;
  journal_.add("running",
               {{"generation", fence_.number}, {"step", lead.first_step}, {"after_s", now_s() - began_s_}});
}

Ending Supervisor::generation(const JobPlan& plan) {
  std::unique_ptr<Ranks> ranks = standby_.take(plan, journal_);
  const bool stood_by = ranks != nullptr;
  if (stood_by) {
    fence_ = ranks->fence();
  } else {
    ++fence_.number;
    fence_.token = random_id();
    raise_fence(fence_);
  }
  ++summary_.generations;
  summary_.ranks = plan.layout.ranks;
  running_ = growing_ = false;
  failed_s_ = seen_s_ = 0;
  checked_s_ = began_s_ = now_s();
  movement_ = Movement(began_s_);
  reach_.reset();
  session::clear_status_pages(held_.folder);
  std::vector<std::string> over(plan.layout.set.begin() + 1, plan.layout.set.end());
  tell_(fmt::format("generation {}: {} ranks on {}{}{}", fence_.number, plan.layout.ranks, hosts_text(plan.hosts),
                    over.empty() ? "" : fmt::format("; {}", fmt::join(over, " ")),
                    stood_by ? ", which stood by" : ""));
  journal_.add("start", {{"generation", fence_.number},
                         {"ranks", plan.layout.ranks},
                         {"hosts", names_of(plan.hosts)},
                         {"set", plan.layout.set},
                         {"layouts_considered", plan.layout.considered},
                         {"stood_by", stood_by}});
  if (agents_) agents_->start(plan.hosts);
  if (stood_by) {
    raise_fence(fence_);  // it is their turn
  } else {
    ranks = start_ranks(plan, fence_);
  }
  ranks->be_heard();
  Evidence evidence;
  std::optional<int> status;
  for (double seen_s = 0; !(status = ranks->poll(kPoll_s));) {
    if (!asked_ && session::Signals::take().stop) {
      asked_ = true;
      ranks->signal(SIGUSR2);
    }
    look_for_hosts(plan, *ranks);
    look_for_slow(plan, *ranks);
    look_for_agents(plan, *ranks);
    look_for_standby(plan);
    if (now_s() - seen_s < 2 * kPoll_s) continue;
    seen_s = now_s();
    const std::vector<comm::RankStatus> standing = comm::read_rank_statuses(held_.folder.ranks(), fence_.number);
    look_for_steps(standing);
    const std::string why = why_force(standing, ranks->said());
    if (why.empty()) continue;
    if (why != "failed") evidence.forced = why;
    ranks->kill();
  }
  evidence.status = *status;
  evidence.said = ranks->said();
  summary_.said = ranks->out();
  ranks.reset();
  end_ranks();
  evidence.asked = asked_ || growing_;
  evidence.ranks = comm::read_rank_statuses(held_.folder.ranks(), fence_.number);
  look_for_steps(evidence.ranks);  // steps that were done since the last look
  return ending_of(evidence);
}

std::vector<comm::RankStatus> Supervisor::statuses_by_our_clock() {
  std::vector<comm::RankStatus> pages = comm::read_rank_statuses(held_.folder.ranks(), fence_.number);
  movement_.see(pages, now_s());
  return movement_.by_clock(std::move(pages), now_s(), static_cast<int64_t>(wall_time_s() * 1e9));
}

void Supervisor::tell_end(const Ending& ending, const JobPlan& plan) {
  const std::vector<std::string> lines = ending.cause == Cause::fault
                                             ? session::stall_lines(held_.folder, statuses_by_our_clock())
                                             : std::vector<std::string>{};
  Json suspects = Json::array();
  for (const int rank : ending.suspects) suspects.push_back(rank);
  journal_.add("end", {{"generation", fence_.number},
                       {"cause", name_of(ending.cause)},
                       {"reason", ending.reason},
                       {"step", ending.step},
                       {"ranks", plan.layout.ranks},
                       {"suspects", suspects},
                       {"standing", lines},
                       {"after_s", now_s() - began_s_}});
  if (ending.cause != Cause::fault) return;
  tell_(fmt::format("generation {} ended in step {}: {}", fence_.number, ending.step, ending.reason));
  for (const std::string& line : lines) tell_("  " + line);
}

// The hosts of a generation whose end names somebody are tried: a product whose bits are known, and transfers
// between each pair. Where a standby waits after a generation that made progress, it goes first: a host that fails
// again is probed after that.
void Supervisor::probe(const Ending& ending, const JobPlan& plan) {
  if (!options_.probe || ending.suspects.empty() || plan.hosts.size() < 2 || asked_) return;
  if (standby_.waits() && persistence_.in_vain() == 0) return;
  std::vector<Host> one_each = pool_.with_slots(wanted());
  for (Host& host : one_each) host.slots = 1;
  if (one_each.size() < 2) return;
  Start start;
  start.hosts = one_each;
  start.shell = options_.shell;
  start.more = options_.more;
  start.program = {options_.program, "probe", "--json"};
  const Environment environment = launcher_environment(held_.folder.path, fence_.number);
  const Ran ran = run_for(launcher_.words(start), environment, launcher_.end_signal, kProbe_s);
  end_ranks();
  // A probe that did not come to its end says nothing of a host: those that are cut off are asked anyway.
  if (ran.status != kDone && ran.status != kFailed) return;
  std::vector<BadHost> found = parse_probe(ran.out, one_each.size());
  if (const std::optional<BadHost> silent = silent_host(ran.error, one_each.size()); found.empty() && silent)
    found.push_back(*silent);
  for (const BadHost& bad : found) lose(one_each[bad.place].name, "a probe says: " + bad.why, true);
  journal_.add("probe", {{"hosts", names_of(one_each)}, {"status", *ran.status}});
}

// A file that is away for a moment looks like a mistake of the user's. Where the same input has trained before, it
// is believed when it comes twice in a row.
void Supervisor::look_again_at_mistake(Ending& ending) {
  if (running_) {
    trained_ = true;
    mistake_ = false;
  }
  if (ending.cause != Cause::mistake || !trained_ || mistake_) return;
  mistake_ = true;
  ending.cause = Cause::fault;
  tell_("the failure blames the input, which this job has trained on before: one more try");
}

// Ranks find the folder by its name: they must not be sent into another that stands in its place.
std::string Supervisor::why_away() const {
  const std::string now = held_.lock.folder().place();
  std::error_code ignored;
  if (!now.empty() && fs::weakly_canonical(now, ignored).string() == held_.folder.path) return "";
  if (now.empty()) return fmt::format("{} was removed while the job ran", held_.folder.path);
  return fmt::format("{0} was renamed to {1} while the job ran; it goes on there with --resume --set output={1}",
                     held_.folder.path, now);
}

JobSummary Supervisor::run() {
  const session::Signals signals;
  session::Signals::answer("waiting for the current step, then for a checkpoint", "the job ends");
  const auto finish = [&](int status, const std::string& reason) {
    summary_.status = status;
    summary_.reason = reason;
    summary_.lost = names_of(pool_.out());
    standby_.end();
    end_ranks();
    if (agents_) agents_->end(status == kDone);
    journal_.add("over", {{"status", status},
                          {"reason", reason},
                          {"generations", summary_.generations},
                          {"faults", summary_.faults}});
    if (status == kDone) {
      std::error_code ignored;
      fs::remove_all(held_path(held_.folder.ranks()), ignored);
    }
    return summary_;
  };
  while (true) {
    const std::optional<JobPlan> plan = next_plan();
    if (asked_) return finish(kInterrupted, "asked to stop");
    if (!plan) return finish(kNoHosts, summary_.reason);
    if (const std::string away = why_away(); !away.empty()) return finish(kFailed, away);
    if (const std::string now = held_.lock.folder().place(); now != held_.lock.folder().path())
      return finish(
          kFailed, fmt::format("{} is no longer this job's folder{}; no ranks are started into what lies there now",
                               held_.folder.path, now.empty() ? "" : ", which has become " + now));
    Ending ending = generation(*plan);
    look_again_at_mistake(ending);
    tell_end(ending, *plan);
    switch (ending.cause) {
      case Cause::done: return finish(kDone, "");
      case Cause::mistake: return finish(kBadInput, ending.reason);
      case Cause::asked:
        if (!growing_ || asked_) return finish(kInterrupted, "asked to stop");
        continue;
      case Cause::fault: break;
    }
    ++summary_.faults;
    if (asked_) return finish(kInterrupted, ending.reason);
    const std::optional<double> pause_s = persistence_.after_fault(ending.step);
    if (!pause_s) {
      const std::string why =
          fmt::format("stopped: {} failures in a row without progress beyond step {}; the last: {}",
                      persistence_.in_vain(), persistence_.furthest(), ending.reason);
      return finish(kFailed, why);
    }
    probe(ending, *plan);
    if (*pause_s > 0) tell_(fmt::format("no progress since the last start; the next start in {:.3g} s", *pause_s));
    for (const double until_s = now_s() + *pause_s; now_s() < until_s && !asked_;) {
      if (session::Signals::take().stop) asked_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

}  // namespace heddle::job
