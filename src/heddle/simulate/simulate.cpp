#include "heddle/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/ir/print.h"
#include "heddle/simulate/running.h"
#include "heddle/simulate/sharing.h"

namespace heddle::simulate {

namespace {

class Simulator : Running {
 public:
  Simulator(const ir::StepProgram& program, const SimulationInput& input, const Recordings& recordings)
      : Running{program, ir::StreamTable(program), folded(program, input), {}, {}},
        input_(input),
        sharing_(1 + most(input.machine_of), input.link_use ? hosts(input, recordings.size()) : 0,
                 input.takes ? fold.kinds() : 0, input.speed) {
    HEDDLE_CHECK(recordings.size() == program.class_of_rank.size(), "{} recordings of {} ranks", recordings.size(),
                 program.class_of_rank.size());
    ranks.resize(static_cast<size_t>(fold.kinds()));
    size_t ops = 0;
    for (size_t k = 0; k < ranks.size(); ++k) {
      ranks[k].recording = recordings[fold.first[k]];
      ops += ranks[k].recording->ops.size();
    }
    if (ops > kMostOps)
      config_error(
          "simulate: {} ranks that differ run {} ops, at most {}; fewer ranks or microbatches, or no jitter, "
          "can be simulated",
          ranks.size(), ops, kMostOps);
    for (size_t k = 0; k < ranks.size(); ++k) start(static_cast<int>(k));
    join_groups();
    place();
  }

  Simulation simulate() {
    for (size_t r = 0; r < ranks.size(); ++r) issue(static_cast<int>(r));
    do {
      while (!ready_.empty()) {
        const auto [rank, stream] = ready_.front();
        ready_.pop_front();
        advance(rank, stream);
      }
    } while (to_next_event());
    return report_of(*this);
  }

 private:
  static int most(const std::vector<int>& of) { return of.empty() ? 0 : *std::max_element(of.begin(), of.end()); }
  static int hosts(const SimulationInput& input, size_t ranks) {
    return input.host_of.empty() ? static_cast<int>(ranks) : 1 + most(input.host_of);
  }
  static Fold folded(const ir::StepProgram& program, const SimulationInput& input) {
    const std::vector<int>& classes = program.class_of_rank;
    for (const std::vector<int>* of : {&input.machine_of, &input.host_of, &input.alike}) {
      HEDDLE_CHECK(of->empty() || of->size() == classes.size(), "{} of {} ranks have a place", of->size(),
                   classes.size());
    }
    if (input.ranks_differ || input.jitter > 0) return unfolded(classes.size());
    std::vector<int> alike;
    std::map<std::pair<int, int>, int> numbers;
    for (size_t r = 0; r < classes.size(); ++r) {
      const std::pair<int, int> key{classes[r], input.alike.empty() ? 0 : input.alike[r]};
      alike.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
    }
    return simulate::fold(alike, input.groups, {input.machine_of, input.host_of});
  }

  void start(int rank) {
    RankState& run = ranks[rank];
    run.lanes.resize(run.recording->streams.size());
    run.members.resize(table.channels().size());
    run.cause.assign(run.recording->ops.size(), kNobody);
    for (const RecordedOp& op : run.recording->ops) {
      SimulatedOp& made = run.ops.emplace_back();
      made.listing = op.listing;
      made.op = op.op;
      made.microbatch = op.microbatch;
      made.stream = op.stream;
      made.live_bytes = op.live_bytes;
      made.reserved_bytes = op.reserved_bytes;
      run.lanes[op.stream].ops.push_back(static_cast<uint32_t>(run.ops.size() - 1));
    }
  }

  // One board for all groups of the same kinds.
  void join_groups() {
    for (size_t channel = 0; channel < table.channels().size(); ++channel) {
      const std::string& name = table.channels()[channel].name;
      const auto at = input_.groups.find(name);
      if (at == input_.groups.end()) continue;
      std::map<std::vector<int>, bool> known;
      for (const std::vector<int>& members : at->second) {
        std::vector<int> kinds;
        for (const int rank : members) {
          HEDDLE_CHECK(rank >= 0 && static_cast<size_t>(rank) < fold.kind_of.size(), "{} has a rank {}", name,
                       rank);
          kinds.push_back(fold.kind_of[rank]);
        }
        if (!known.try_emplace(kinds, true).second) continue;
        GroupQueue& group_queue = group_queues.emplace_back();
        group_queue.kinds = kinds;
        for (size_t i = 0; i < kinds.size(); ++i) {
          if (!group_queue.met.try_emplace(kinds[i], 0).second) continue;
          ranks[kinds[i]].members[channel] = {static_cast<int>(group_queues.size()) - 1, static_cast<int>(i)};
        }
        group_queue.distinct = group_queue.met.size();
      }
    }
  }

  // How many ranks of each kind stand where the first of some kind stands.
  void place() {
    std::map<std::pair<int, int>, int> on_machine, on_host;  // by (kind, place)
    std::vector<bool> machine_used(static_cast<size_t>(1 + most(input_.machine_of)), false);
    std::vector<bool> host_used(static_cast<size_t>(hosts(input_, fold.kind_of.size())), false);
    for (const int first : fold.first) {
      machine_used[machine_of(first)] = true;
      host_used[host_of(first)] = true;
    }
    for (size_t r = 0; r < fold.kind_of.size(); ++r) {
      const int rank = static_cast<int>(r), kind = fold.kind_of[r];
      if (machine_used[machine_of(rank)]) ++on_machine[{kind, machine_of(rank)}];
      if (host_used[host_of(rank)]) ++on_host[{kind, host_of(rank)}];
    }
    on_machines_.resize(ranks.size());
    on_hosts_.resize(ranks.size());
    for (const auto& [at, count] : on_machine) on_machines_[at.first].push_back({at.second, count});
    for (const auto& [at, count] : on_host) on_hosts_[at.first].push_back({at.second, count});
  }

  int machine_of(int rank) const { return input_.machine_of.empty() ? 0 : input_.machine_of[rank]; }
  int host_of(int rank) const { return input_.host_of.empty() ? rank : input_.host_of[rank]; }

  // Microseconds of an op alone.
  double duration_us(OpRef who) const {
    const double us = ranks[who.rank].recording->ops[who.index].duration_us;
    if (input_.jitter <= 0) return us;
    const double variance = std::log1p(input_.jitter * input_.jitter);
    const RandomKey key = RandomKey(input_.seed).with("jitter").with(static_cast<uint64_t>(who.rank));
    return us * std::exp(std::sqrt(variance) * key.normal(who.index) - variance / 2);
  }

  void wake(int rank, int lane) { ready_.emplace_back(rank, lane); }

  // Something that ends or may begin at a time that is known.
  struct Event {
    double at_us;
    uint64_t turn;  // order of two at the same time: the one foreseen first
    int work;       // index into works_; -1: an op has been issued to this lane
    int rank, stream;
    bool operator<(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : turn > other.turn;
    }
  };
  // Work that runs: an op, or a collective with all who take part.
  struct Work {
    std::vector<OpRef> members;
    double start_us = 0;
    double left_us = 0;    // alone on the machine
    double threads = 0;    // each member's
    OpRef last = kNobody;  // the last one to come
    std::vector<Sharing::Demand> demands;
  };

  void at(double at_us, int work, int rank = -1, int stream = -1) {
    events_.push({at_us, turn_++, work, rank, stream});
  }

  void begin(Work work) {
    work.start_us = now_us_;
    for (const OpRef& one : work.members) {
      const RankState& run = ranks[one.rank];
      ranks[one.rank].lanes[run.ops[one.index].stream].running = true;
    }
    demand(work);
    sharing_.take(work.demands);
    int index = static_cast<int>(works_.size());
    if (!free_works_.empty()) {
      index = free_works_.back();
      free_works_.pop_back();
    } else {
      works_.emplace_back();
    }
    const double end_us = now_us_ + work.left_us;
    const bool shares = !work.demands.empty();
    works_[index] = std::move(work);
    if (shares) {
      sharers_.push_back(index);
    } else {
      at(end_us, index);
    }
  }

  // Sets the demands of a work, together with those of the same kinds that run at the same time, on the resources
  // of their places.
  void demand(Work& work) {
    const auto on = [&](int kind, const std::vector<std::vector<std::pair<int, int>>>& places, double amount,
                        const auto& resource) {
      if (amount <= 0) return;
      for (const auto& [place, count] : places[static_cast<size_t>(kind)])
        work.demands.push_back({resource(place), amount * count});
    };
    const auto cores = [&](int machine) { return sharing_.cores(machine); };
    const auto out_of = [&](int host) { return sharing_.out_of(host); };
    const auto into = [&](int host) { return sharing_.into(host); };
    for (const OpRef& one : work.members) {
      if (input_.speed) on(one.rank, on_machines_, work.threads, cores);
      const RankState& run = ranks[one.rank];
      const RecordedOp& recorded = run.recording->ops[one.index];
      const ir::Op& op = op_of(run.ops[one.index]);
      if (input_.takes && (recorded.takes > 0 || op.def->stream == ir::StreamKind::compute))
        work.demands.push_back({sharing_.units(one.rank), recorded.takes});
      if (!input_.link_use || work.left_us <= 0) continue;
      const LinkUse& link = recorded.link;
      int receiver = one.rank;  // a message arrives where it is sent
      if (op.def->moves == ir::Moves::to_neighbour) {
        const Member& member = member_of(one);
        receiver = group_queues[member.group].kinds[peer_of(member, op, one.rank)];
      }
      on(one.rank, on_hosts_, link.out_us / work.left_us, out_of);
      on(receiver, on_hosts_, link.in_us / work.left_us, into);
    }
    merge(work.demands);
  }

  // Lets time pass until something ends or may begin. False when nothing will.
  bool to_next_event() {
    double next_us = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at_us;
    speeds_.clear();
    ends_us_.clear();
    for (const int w : sharers_) {
      const Work& work = works_[w];
      speeds_.push_back(sharing_.speed(work.demands));
      ends_us_.push_back(now_us_ + work.left_us / speeds_.back());
      next_us = std::min(next_us, ends_us_.back());
    }
    if (next_us == std::numeric_limits<double>::infinity()) return false;
    const double passed_us = next_us - now_us_;
    now_us_ = next_us;
    std::vector<int> ended;
    size_t kept = 0;
    for (size_t i = 0; i < sharers_.size(); ++i) {
      Work& work = works_[sharers_[i]];
      work.left_us -= passed_us * speeds_[i];
      if (work.left_us <= 1e-5 || ends_us_[i] <= now_us_) {  // late in a long step the clock is coarser than that
        ended.push_back(sharers_[i]);
      } else {
        sharers_[kept++] = sharers_[i];
      }
    }
    sharers_.resize(kept);
    while (!events_.empty() && events_.top().at_us <= now_us_) {
      const Event event = events_.top();
      events_.pop();
      if (event.work >= 0) {
        ended.push_back(event.work);
      } else {
        wake(event.rank, event.stream);
      }
    }
    for (const int work : ended) end(work);
    return true;
  }

  void end(int index) {
    const Work work = std::move(works_[index]);
    free_works_.push_back(index);
    sharing_.give_back(work.demands);
    for (const OpRef& one : work.members) {
      RankState& run = ranks[one.rank];
      const ir::Op& op = op_of(run.ops[one.index]);
      if (op.def->moves == ir::Moves::from_neighbour && !received(one)) continue;
      complete(one, work.start_us, one.rank == work.last.rank ? run.cause[one.index] : work.last);
      if (op.def->moves == ir::Moves::to_neighbour) deliver(one);
    }
  }

  // The host goes on: enqueues until it must wait for an op.
  void issue(int rank) {
    RankState& run = ranks[rank];
    while (run.issued < run.ops.size()) {
      SimulatedOp& op = run.ops[run.issued];
      run.host_us += input_.enqueue_us;
      op.issued_us = run.host_us;
      wake(rank, op.stream);
      const bool stall = run.recording->ops[run.issued].host_stall;
      if (stall) run.stalled_on = static_cast<int64_t>(run.issued);
      ++run.issued;
      if (stall) return;
    }
  }

  // Begins what can run on a stream of a rank.
  void advance(int rank, int stream) {
    RankState& run = ranks[rank];
    Lane& lane = run.lanes[stream];
    if (lane.running || lane.met || lane.next == lane.ops.size()) return;
    const uint32_t index = lane.ops[lane.next];
    if (index >= run.issued) return;  // the host will wake us
    if (run.ops[index].issued_us > now_us_) return at(run.ops[index].issued_us, -1, rank, stream);
    const RecordedOp& recorded = run.recording->ops[index];
    if (!others_ended(run, recorded, stream)) return;
    run.cause[index] = cause_of({rank, index});
    const ir::Op& op = op_of(run.ops[index]);
    if (ir::communicates(*op.def)) {
      const Member& member = member_of({rank, index});
      HEDDLE_CHECK(member.group >= 0, "rank {} runs '{}' over '{}', which has no group", first_of(rank), op.kind(),
                   ir::channel_name(op));
      if (op.def->collective) return meet(lane, {rank, index});
      peer_of(member, op, rank);
    }
    // A stream that has slept until another woke it is late.
    const bool slept = now_us_ > std::max(lane.free_us, run.ops[index].issued_us);
    begin({.members = {{rank, index}},
           .left_us = duration_us({rank, index}) + (slept ? input_.wake_us : 0),
           .threads = recorded.threads,
           .last = {rank, index},
           .demands = {}});
  }

  // The place of an op's rank in the group over whose channel it goes.
  const Member& member_of(OpRef who) const {
    const RankState& run = ranks[who.rank];
    const SimulatedOp& op = run.ops[who.index];
    return run.members[table.channel_of(op.listing, op.op)];
  }

  int peer_of(const Member& member, const ir::Op& op, int rank) const {
    const auto step = op.attributes.integer("step");
    const int64_t peer = member.position + step;
    const GroupQueue& group_queue = group_queues[member.group];
    HEDDLE_CHECK(peer >= 0 && peer < std::ssize(group_queue.kinds), "rank {} has no neighbour {:+}", first_of(rank),
                 step);
    return static_cast<int>(peer);
  }

  // A send has ended: its letter lies there.
  void deliver(OpRef who) {
    const Member& member = member_of(who);
    GroupQueue& group_queue = group_queues[member.group];
    const int peer = peer_of(member, op_of(ranks[who.rank].ops[who.index]), who.rank);
    GroupQueue::Mail& mail = group_queue.mail[{member.position, peer}];
    mail.sent.push_back(who);
    if (!mail.waited_for) return;
    mail.waited_for = false;
    const int rank = group_queue.kinds[peer];
    RankState& run = ranks[rank];
    const OpRef one = receive_of(rank, member.group);
    ++mail.received;
    complete(one, std::max(run.ops[one.index].start_us, now_us_ - duration_us(one)), who);
  }

  // A receive is over as far as it is up to it: is the letter there?
  bool received(OpRef one) {
    RankState& run = ranks[one.rank];
    const Member& member = member_of(one);
    GroupQueue& group_queue = group_queues[member.group];
    const int peer = peer_of(member, op_of(run.ops[one.index]), one.rank);
    GroupQueue::Mail& mail = group_queue.mail[{peer, member.position}];
    if (mail.received < mail.sent.size()) {
      ++mail.received;
      return true;
    }
    mail.waited_for = true;
    run.ops[one.index].start_us = now_us_ - duration_us(one);  // at the earliest
    return false;
  }

  // The op in which `rank` is receiving over the group's channel just now.
  OpRef receive_of(int rank, int group) const {
    const RankState& run = ranks[rank];
    for (const Lane& lane : run.lanes) {
      if (!lane.running) continue;
      const OpRef one{rank, lane.ops[lane.next]};
      if (op_of(run.ops[one.index]).def->moves == ir::Moves::from_neighbour && member_of(one).group == group)
        return one;
    }
    internal_error("rank {} receives nothing", first_of(rank));
  }

  // True if all that the op waits for has ended; a lane that isn't there yet will wake us.
  bool others_ended(RankState& run, const RecordedOp& op, int stream) {
    for (uint32_t w = op.first_wait; w < op.first_wait + op.waits; ++w) {
      const ir::Wait& wait = run.recording->waits[w];
      Lane& other = run.lanes[wait.stream];
      if (other.next < wait.count) {
        other.sleepers.push_back(stream);
        return false;
      }
    }
    return true;
  }

  // Arrives at the group's next collective; the last to arrive begins it for all.
  void meet(Lane& lane, OpRef who) {
    lane.met = true;
    GroupQueue& group_queue = group_queues[member_of(who).group];
    const size_t turn = group_queue.met.at(who.rank)++;
    if (group_queue.meetings.size() <= turn) group_queue.meetings.resize(turn + 1);
    GroupQueue::Meeting& meeting = group_queue.meetings[turn];
    meeting.arrived.push_back(who);
    if (meeting.arrived.size() < group_queue.distinct) return;
    Work work{.members = std::move(meeting.arrived), .last = who, .demands = {}};
    bool slept = false;
    for (const OpRef& one : work.members) {
      RankState& run = ranks[one.rank];
      const RecordedOp& recorded = run.recording->ops[one.index];
      HEDDLE_CHECK(op_of(run.ops[one.index]).def == op_of(ranks[who.rank].ops[who.index]).def,
                   "rank {} runs '{}' where rank {} runs '{}'", first_of(one.rank),
                   op_of(run.ops[one.index]).kind(), first_of(who.rank),
                   op_of(ranks[who.rank].ops[who.index]).kind());
      Lane& of = run.lanes[run.ops[one.index].stream];
      of.met = false;
      slept = slept || now_us_ > std::max(of.free_us, run.ops[one.index].issued_us);
      work.left_us = std::max(work.left_us, duration_us(one));
      work.threads = std::max(work.threads, recorded.threads);
    }
    if (slept) work.left_us += input_.wake_us;
    begin(std::move(work));
  }

  // The op whose end lets an op begin that can begin now.
  OpRef cause_of(OpRef who) const {
    const RankState& run = ranks[who.rank];
    const RecordedOp& op = run.recording->ops[who.index];
    const Lane& lane = run.lanes[op.stream];
    OpRef cause = lane.next > 0 && lane.free_us >= run.ops[who.index].issued_us
                      ? OpRef{who.rank, lane.ops[lane.next - 1]}
                      : kNobody;
    double from_us = std::max(lane.free_us, run.ops[who.index].issued_us);
    for (uint32_t w = op.first_wait; w < op.first_wait + op.waits; ++w) {
      const ir::Wait& wait = run.recording->waits[w];
      const uint32_t last = run.lanes[wait.stream].ops[wait.count - 1];
      if (run.ops[last].end_us > from_us) {
        from_us = run.ops[last].end_us;
        cause = {who.rank, last};
      }
    }
    return cause;
  }

  void complete(OpRef who, double start_us, OpRef cause) {
    const auto [rank, index] = who;
    RankState& run = ranks[rank];
    SimulatedOp& op = run.ops[index];
    Lane& lane = run.lanes[op.stream];
    const double end_us = now_us_, could_us = std::max(lane.free_us, op.issued_us);
    op.start_us = start_us;
    op.end_us = end_us;
    op.ran = true;
    run.cause[index] = cause;
    lane.running = false;
    lane.waiting_us += start_us - could_us;
    lane.busy_us += end_us - start_us;
    lane.free_us = end_us;
    ++lane.next;
    wake(rank, op.stream);
    for (const int sleeper : lane.sleepers) wake(rank, sleeper);
    lane.sleepers.clear();
    if (run.stalled_on == static_cast<int64_t>(index)) {
      run.stalled_on = -1;
      run.stalled_us += std::max(0.0, end_us - run.host_us);
      run.host_us = std::max(run.host_us, end_us);
      issue(rank);
    }
  }

  const SimulationInput& input_;
  Sharing sharing_;
  std::vector<std::vector<std::pair<int, int>>> on_machines_, on_hosts_;  // [kind]: place, ranks there
  std::deque<std::pair<int, int>> ready_;
  double now_us_ = 0;
  uint64_t turn_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Work> works_;
  std::vector<int> free_works_, sharers_;  // indices into works_; what runs at a speed that depends on the others
  std::vector<double> speeds_, ends_us_;   // the sharers'; when each would end at its speed
};

}  // namespace

Simulation simulate(const ir::StepProgram& program, const SimulationInput& input, const Recordings& recordings) {
  return Simulator(program, input, recordings).simulate();
}

Simulation simulate(const ir::StepProgram& program, const SimulationInput& input) {
  return simulate(program, input, record_all(program, input));
}

}  // namespace heddle::simulate
