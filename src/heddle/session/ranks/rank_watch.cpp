#include "heddle/session/ranks/rank_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/session/slow/op_table.h"
#include "heddle/session/slow/slow_cost.h"

namespace heddle::session {

namespace {

constexpr size_t kMostWindows = 256;
constexpr size_t kMostShownRanks = 16;
constexpr int64_t kProbeBytes = 1 << 20;
constexpr int kProbeTimes = 5;

}  // namespace

RankWatch::RankWatch(train::Trainer& trainer, comm::World* world, const train::Sharing& sharing,
                     config::StepRange ops, comm::CallLog* calls)
    : trainer_(trainer), asked_(ops) {
  if (world == nullptr || world->size() == 1) return;
  for (int r = 0; r < world->size(); ++r) {
    places_.node_of.push_back(world->node_of(r));
    places_.hosts.push_back(world->host_of(r));
  }
  if (sharing.cores > 1) return;
  ranks_.emplace(trainer.lowered().program.class_of_rank);
  if (calls != nullptr) {
    exchanges_.emplace(*world, calls->links());
    fits_.emplace(places_.node_of);
  }
  if (world->size() > kMostProbedRanks) return;
  std::vector<int> all(static_cast<size_t>(world->size()));
  std::iota(all.begin(), all.end(), 0);
  link_ = world->communicator(all, "comm.probe");
}

void RankWatch::time_ops(int64_t steps) {
  clock_.time_steps(steps);
  wanted_ = true;
}

bool RankWatch::times_ops(int64_t step) {
  if (asked_.holds(step) && !wanted_) time_ops(asked_.last - step + 1);
  if (!clock_.runs()) return false;
  if (timed_first_ == 0) timed_first_ = step;
  timed_last_ = step;
  return true;
}

void RankWatch::before_step() { clock_.before_step(trainer_.executor()); }

void RankWatch::after_step() { timed_ = clock_.after_step(trainer_.executor()); }

std::vector<Alarm> RankWatch::after(const train::StepResult& result) {
  std::vector<Alarm> alarms;
  if (std::exchange(timed_, false)) name_ops(alarms);
  if (!ranks_) return alarms;
  waits_.add(result);
  if (ranks_->add(result.step, result.work)) judge(result, alarms);
  return alarms;
}

std::vector<Alarm> RankWatch::rest() {
  std::vector<Alarm> alarms;
  for (const NamedSlowRank& rank : pending_) alarms.push_back(alarm_of(rank));
  named_.insert(named_.end(), pending_.begin(), pending_.end());
  pending_.clear();
  return alarms;
}

void RankWatch::judge(const train::StepResult& result, std::vector<Alarm>& alarms) {
  keep(result);
  const auto same = [](const SlowRank& a) {
    return [&a](const NamedSlowRank& b) { return a.rank == b.slow.rank && a.kind == b.slow.kind; };
  };
  for (const SlowRank& slow : ranks_->ended()) {
    for (std::vector<NamedSlowRank>* list : {&pending_, &named_}) {
      const auto at = std::find_if(list->begin(), list->end(), same(slow));
      if (at == list->end()) continue;
      if (list == &named_) alarms.push_back(ended_alarm(*at));
      list->erase(at);
    }
  }
  for (const SlowRank& slow : ranks_->slow()) {
    const auto at = std::find_if(named_.begin(), named_.end(), same(slow));
    if (at != named_.end()) at->slow = slow;
  }
  for (const SlowRank& slow : ranks_->found()) {
    const auto r = static_cast<size_t>(slow.rank);
    NamedSlowRank& rank = pending_.emplace_back();
    rank.slow = slow;
    rank.host = places_.hosts[r];
    rank.node = places_.node_of[r];
    rank.step_s = result.seconds;
  }
  if (!pending_.empty()) clock_.time_steps(kTimedSteps);
  judge_links(alarms);
}

std::vector<std::vector<double>> RankWatch::probe() {
  return all_transfer_times(*link_, trainer_.ranks(), kProbeBytes, kProbeTimes);
}

// Returns whether any link is slow, for which steps may wait.
bool RankWatch::judge_exchanges(std::vector<Alarm>& alarms) {
  if (!exchanges_) return false;
  const std::vector<LinkTime> times = exchanges_->gather(trainer_.lowered().program);
  if (trainer_.ranks().leads()) {
    fits_->add(windows_.back().first, times);
    for (const SlowLink& link : fits_->ended()) alarms.push_back(ended_alarm(link, places_));
    for (const SlowLink& link : fits_->found()) alarms.push_back(alarm_of(link, places_));
  }
  return trainer_.ranks().any(!fits_->slow().empty());
}

void RankWatch::judge_links(std::vector<Alarm>& alarms) {
  const bool known = judge_exchanges(alarms);
  waits_.judge(ranks_->suspected_s());
  if (link_ == nullptr) return;
  if (transfers_s_.empty()) {
    transfers_s_ = probe();
    const std::vector<SlowPair> first = slow_pairs(transfers_s_, {}, places_.node_of);
    if (first.empty()) return;
    // Once is chance: what is slow is so again.
    const std::vector<std::vector<double>> again_s = probe();
    for (size_t a = 0; a < again_s.size(); ++a) {
      for (size_t b = 0; b < again_s.size(); ++b) transfers_s_[a][b] = std::min(transfers_s_[a][b], again_s[a][b]);
    }
    std::vector<SlowPair> pairs = slow_pairs(transfers_s_, {}, places_.node_of);
    if (pairs.empty()) return;
    links_ = SlowLinks{std::nullopt, windows_.back().first, std::move(pairs)};
    alarms.push_back(alarm_of(*links_, places_.hosts));
  } else if (waits_.found() && !known) {
    links_ = SlowLinks{waits_.now(), waits_.now()->since, slow_pairs(probe(), transfers_s_, places_.node_of)};
    alarms.push_back(alarm_of(*links_, places_.hosts));
  } else if (waits_.ended() && links_) {
    alarms.push_back(ended_alarm(*links_, places_.hosts));
    links_.reset();
  }
}

// One rank of each kind does where none is slow; all ranks that do the same as a slow one do.
bool RankWatch::tells_ops(int rank) const {
  if (wanted_) return true;
  const std::vector<int>& class_of = trainer_.lowered().program.class_of_rank;
  const int own = class_of[rank];
  if (std::find(class_of.begin(), class_of.end(), own) - class_of.begin() == rank) return true;
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const NamedSlowRank& slow) { return class_of[slow.slow.rank] == own; });
}

void RankWatch::name_ops(std::vector<Alarm>& alarms) {
  train::RankExchange& ranks = trainer_.ranks();
  const OpTimes own = clock_.take();
  std::vector<OpTimes> of_rank;
  for (const std::string& bytes : ranks.share(tells_ops(ranks.rank()) ? packed(own) : ""))
    of_rank.push_back(unpacked(bytes));
  const ir::StepProgram& program = trainer_.lowered().program;
  if (std::exchange(wanted_, false) && ranks.leads())
    op_times_ = op_times_json(program, of_rank, {timed_first_, timed_last_});
  timed_first_ = timed_last_ = 0;
  for (NamedSlowRank& rank : pending_) {
    const auto r = static_cast<size_t>(rank.slow.rank);
    std::vector<const OpTimes*> others;
    for (size_t other = 0; other < of_rank.size(); ++other) {
      const bool same = program.class_of_rank[other] == program.class_of_rank[r];
      if (same && other != r && !of_rank[other].empty()) others.push_back(&of_rank[other]);
    }
    if (const std::optional<SlowOp> op = slow_op(program, rank.slow.kind, of_rank[r], others)) {
      const ir::Listing& listing = program.listings[op->listing];
      rank.op = label_of(listing, listing.ops[op->op]);
      rank.op_phase = ir::name_of(listing.ops[op->op].phase);
      rank.scope = name_of(op->scope);
      rank.op_text = text_of(*op, program);
      rank.op_share = op->share;
      rank.op_times = op->times;
    }
    if (ranks.leads()) {
      if (const std::optional<double> part = step_without(trainer_, of_rank, rank.slow.rank))
        rank.without_s = *part * rank.step_s;
    }
  }
  std::vector<Alarm> ended = rest();
  alarms.insert(alarms.end(), ended.begin(), ended.end());
}

void RankWatch::keep(const train::StepResult& result) {
  windows_.push_back({result.step - SlowRanks::kWindow + 1, result.step, ranks_->ratios()});
  if (windows_.size() <= kMostWindows) return;
  // Two windows become one, with the worst of both, and the picture goes on at half the detail.
  std::deque<Window> fewer;
  for (size_t i = 0; i < windows_.size(); ++i) {
    if (i % 2 == 0) {
      fewer.push_back(std::move(windows_[i]));
      continue;
    }
    Window& into = fewer.back();
    into.last = windows_[i].last;
    for (size_t r = 0; r < into.ratios.size(); ++r) {
      for (size_t k = 0; k < kWorkKinds; ++k)
        into.ratios[r][k] = std::fmax(into.ratios[r][k], windows_[i].ratios[r][k]);
    }
  }
  windows_ = std::move(fewer);
}

std::optional<std::vector<NamedSlowRank>> RankWatch::slow() const {
  if (!ranks_) return std::nullopt;
  std::vector<NamedSlowRank> all = named_;
  all.insert(all.end(), pending_.begin(), pending_.end());
  return all;
}

std::pair<size_t, nlohmann::ordered_json> RankWatch::slow_links() const {
  size_t count = links_ ? links_->pairs.size() : 0;
  nlohmann::ordered_json json = links_ ? json_of(*links_, places_.hosts) : nlohmann::ordered_json();
  for (const SlowLink& link : fits_ ? fits_->slow() : std::vector<SlowLink>()) {
    const nlohmann::ordered_json one = json_of(link, places_);
    if (json.is_null()) {
      json = one;
    } else {
      json["pairs"].push_back(one["pairs"][0]);
    }
    ++count;
  }
  return {count, json};
}

std::string RankWatch::summary() const {
  std::string text;
  if (const auto all = slow(); all && !all->empty()) {
    const auto worst = std::max_element(
        all->begin(), all->end(),
        [](const NamedSlowRank& a, const NamedSlowRank& b) { return a.slow.excess_s < b.slow.excess_s; });
    text = fmt::format("slow: rank {} {} {:.2f}x", worst->slow.rank, name_of(worst->slow.kind), worst->slow.times);
    if (all->size() > 1) text += fmt::format(" +{}", all->size() - 1);
  } else if (const std::vector<SlowLink> links = fits_ ? fits_->slow() : std::vector<SlowLink>(); !links.empty()) {
    const auto worst = std::max_element(links.begin(), links.end(),
                                        [](const SlowLink& a, const SlowLink& b) { return a.times < b.times; });
    text = fmt::format("slow link: {} {:.2f}x", short_name(*worst), worst->times);
  } else if (links_ && !links_->pairs.empty()) {
    const SlowPair& pair = links_->pairs[0];
    text = pair.b < 0 ? fmt::format("slow link: rank {} {:.1f}x", pair.a, pair.times())
                      : fmt::format("slow link: {}-{} {:.1f}x", pair.a, pair.b, pair.times());
  }
  return text;
}

observe::RankSpeeds RankWatch::speeds() const {
  observe::RankSpeeds speeds;
  if (windows_.empty()) return speeds;
  const size_t ranks = windows_[0].ratios.size();
  // The picture of many ranks has those that were slowest in any window.
  std::vector<std::pair<double, size_t>> worst;
  for (size_t r = 0; r < ranks; ++r) {
    double most = 0;
    for (const Window& window : windows_) {
      for (const double ratio : window.ratios[r]) most = std::fmax(most, ratio);
    }
    worst.emplace_back(-most, r);
  }
  if (worst.size() > kMostShownRanks) {
    std::sort(worst.begin(), worst.end());
    worst.resize(kMostShownRanks);
    std::sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  }
  speeds.ranks = ranks;
  for (const Window& window : windows_) speeds.windows.emplace_back(window.first, window.last);
  for (const auto& [ratio, r] : worst) {
    for (size_t k = 0; k < kWorkKinds; ++k) {
      std::vector<double> row;
      for (const Window& window : windows_) row.push_back(window.ratios[r][k]);
      if (std::none_of(row.begin(), row.end(), [](double v) { return std::isfinite(v); })) continue;
      speeds.rows.push_back(fmt::format("rank {} {}", r, name_of(static_cast<WorkKind>(k))));
      speeds.ratio.push_back(std::move(row));
    }
  }
  return speeds;
}

}  // namespace heddle::session
