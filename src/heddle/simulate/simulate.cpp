#include "heddle/simulate/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <queue>

#include "heddle/ir/print.h"

namespace heddle::simulate {

Groups groups_of(const ir::StepProgram& program, const plan::Mesh& mesh) {
  Groups groups;
  const ir::StreamTable streams(program);
  for (const std::string& stream : streams.names()) {
    const std::string name = ir::group_of_stream(stream), channel = ir::channel_of_stream(stream);
    if (name.empty() || groups.contains(channel)) continue;
    std::vector<bool> seen(static_cast<size_t>(mesh.ranks()), false);
    for (int r = 0; r < mesh.ranks(); ++r) {
      if (seen[static_cast<size_t>(r)]) continue;
      const std::vector<int> ranks = mesh.group(name, r);
      if (ranks.empty()) continue;
      for (const int member : ranks) seen[static_cast<size_t>(member)] = true;
      groups[channel].push_back(ranks);
    }
  }
  return groups;
}

namespace {

constexpr Link kNobody{-1, 0};

// A place in a group's communicator.
struct Member {
  int group = -1;
  int position = 0;
};

// What ranks of a group put on their communicator: collectives by order, letters by sender and receiver.
struct Board {
  std::vector<int> ranks;
  struct Meeting {
    std::vector<Link> arrived;
  };
  std::vector<Meeting> meetings;
  std::vector<size_t> met;  // by position: collectives begun
  struct Mail {
    std::vector<Link> sent;  // ended sends
    size_t received = 0;
    bool waited_for = false;
  };
  std::map<std::pair<int, int>, Mail> mail;
};

class Simulator {
 public:
  Simulator(const ir::StepProgram& program, const SimulationInput& input) : program_(program), input_(input) {
    record_all();
    for (const int machine : input.machine_of) machines_ = std::max(machines_, machine + 1);
    HEDDLE_CHECK(input.machine_of.empty() || input.machine_of.size() == runs_.size(), "{} ranks are on machines",
                 input.machine_of.size());
    for (size_t r = 0; r < runs_.size(); ++r) start(static_cast<int>(r));
    join_groups();
  }

  Simulation simulate() {
    for (size_t r = 0; r < runs_.size(); ++r) issue(static_cast<int>(r));
    do {
      while (!ready_.empty()) {
        const auto [rank, stream] = ready_.front();
        ready_.pop_front();
        advance(rank, stream);
      }
    } while (to_next_event());
    return finish();
  }

 private:
  struct Lane {                 // a stream of a rank
    std::vector<uint32_t> ops;  // indices into the recording
    size_t next = 0;            // the op that is to run
    double free_us = 0;         // end of the op before it
    bool running = false;       // the op at `next`
    bool met = false;           // the op to run has arrived at its meeting
    std::vector<int> sleepers;  // lanes of this rank that wait for this one to go on
    Member member;
    double busy_us = 0, waiting_us = 0;
  };
  struct Run {  // a rank
    std::shared_ptr<const Recording> recording;
    std::vector<SimulatedOp> ops;
    std::vector<Link> cause;  // whose end let each op start
    std::vector<Lane> lanes;
    size_t issued = 0;  // ops that the host has enqueued
    double host_us = 0;
    double stalled_us = 0;
    int64_t stalled_on = -1;
  };

  void record_all() {
    const size_t ranks = program_.class_of_rank.size();
    runs_.resize(ranks);
    std::map<int, std::shared_ptr<const Recording>> of_class;
    for (size_t r = 0; r < ranks; ++r) {
      std::shared_ptr<const Recording>& known = of_class[program_.class_of_rank[r]];
      if (!known || input_.ranks_differ) {
        known = std::make_shared<Recording>(record(program_, static_cast<int>(r), input_));
      }
      runs_[r].recording = known;
    }
  }

  void start(int rank) {
    Run& run = runs_[static_cast<size_t>(rank)];
    run.lanes.resize(run.recording->streams.size());
    run.cause.assign(run.recording->ops.size(), kNobody);
    for (const RecordedOp& op : run.recording->ops) {
      SimulatedOp& made = run.ops.emplace_back();
      made.stage = op.stage;
      made.op = op.op;
      made.microbatch = op.microbatch;
      made.stream = op.stream;
      made.live_bytes = op.live_bytes;
      made.reserved_bytes = op.reserved_bytes;
      run.lanes[static_cast<size_t>(op.stream)].ops.push_back(static_cast<uint32_t>(run.ops.size() - 1));
    }
  }

  void join_groups() {
    for (const auto& [channel, groups] : input_.groups) {
      for (const std::vector<int>& ranks : groups) {
        Board& board = boards_.emplace_back();
        board.ranks = ranks;
        board.met.assign(ranks.size(), 0);
        for (size_t i = 0; i < ranks.size(); ++i) {
          HEDDLE_CHECK(ranks[i] >= 0 && static_cast<size_t>(ranks[i]) < runs_.size(), "{} has a rank {}", channel,
                       ranks[i]);
          Run& run = runs_[static_cast<size_t>(ranks[i])];
          const auto& names = run.recording->streams;
          for (size_t lane = 0; lane < names.size(); ++lane) {
            if (ir::channel_of_stream(names[lane]) != channel) continue;
            run.lanes[lane].member = {static_cast<int>(boards_.size()) - 1, static_cast<int>(i)};
          }
        }
      }
    }
  }

  const ir::Op& op_of(const SimulatedOp& op) const {
    return program_.stages[static_cast<size_t>(op.stage)].ops[op.op];
  }

  void wake(int rank, int lane) { ready_.emplace_back(rank, lane); }

  // Something that ends or may begin at a time that is known.
  struct Event {
    double at_us;
    uint64_t turn;  // of two at the same time the one that was foreseen first
    int work;       // index into works_; -1: an op has been issued to this lane
    int rank, stream;
    bool operator<(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : turn > other.turn;
    }
  };
  // What runs: an op, or a collective with all who take part.
  struct Work {
    std::vector<Link> members;
    double start_us = 0;
    double left_us = 0;   // alone on the machine
    double threads = 0;   // of each member
    Link last = kNobody;  // who came last
  };

  int machine_of(int rank) const {
    return input_.machine_of.empty() ? 0 : input_.machine_of[static_cast<size_t>(rank)];
  }

  void at(double at_us, int work, int rank = -1, int stream = -1) {
    events_.push({at_us, turn_++, work, rank, stream});
  }

  void begin(Work work) {
    work.start_us = now_us_;
    for (const Link& one : work.members) {
      const Run& run = runs_[static_cast<size_t>(one.rank)];
      runs_[static_cast<size_t>(one.rank)].lanes[static_cast<size_t>(run.ops[one.index].stream)].running = true;
    }
    int index = static_cast<int>(works_.size());
    if (!free_works_.empty()) {
      index = free_works_.back();
      free_works_.pop_back();
    } else {
      works_.emplace_back();
    }
    works_[static_cast<size_t>(index)] = std::move(work);
    if (works_[static_cast<size_t>(index)].threads > 0 && input_.speed) {
      sharing_.push_back(index);
    } else {
      at(now_us_ + works_[static_cast<size_t>(index)].left_us, index);
    }
  }

  // Of a work that shares the cores of its members' machines: the slowest of them counts.
  double speed_of(const Work& work, const std::vector<double>& busy) const {
    double slowest = 1e9;
    for (const Link& one : work.members) {
      slowest = std::min(slowest, input_.speed(busy[static_cast<size_t>(machine_of(one.rank))]));
    }
    return slowest;
  }

  // Lets time pass until something ends or may begin. False when nothing will.
  bool to_next_event() {
    double next_us = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at_us;
    std::vector<double> speeds;
    if (!sharing_.empty()) {
      std::vector<double> busy(static_cast<size_t>(machines_), 0);
      for (const int w : sharing_) {
        const Work& work = works_[static_cast<size_t>(w)];
        for (const Link& one : work.members) busy[static_cast<size_t>(machine_of(one.rank))] += work.threads;
      }
      for (const int w : sharing_) {
        const Work& work = works_[static_cast<size_t>(w)];
        speeds.push_back(speed_of(work, busy));
        next_us = std::min(next_us, now_us_ + work.left_us / speeds.back());
      }
    }
    if (next_us == std::numeric_limits<double>::infinity()) return false;
    const double passed_us = next_us - now_us_;
    now_us_ = next_us;
    std::vector<int> ended;
    size_t kept = 0;
    for (size_t i = 0; i < sharing_.size(); ++i) {
      Work& work = works_[static_cast<size_t>(sharing_[i])];
      work.left_us -= passed_us * speeds[i];
      if (work.left_us <= 1e-5) {
        ended.push_back(sharing_[i]);
      } else {
        sharing_[kept++] = sharing_[i];
      }
    }
    sharing_.resize(kept);
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
    const Work work = std::move(works_[static_cast<size_t>(index)]);
    free_works_.push_back(index);
    for (const Link& one : work.members) {
      Run& run = runs_[static_cast<size_t>(one.rank)];
      const int stream = run.ops[one.index].stream;
      Lane& lane = run.lanes[static_cast<size_t>(stream)];
      const ir::Op& op = op_of(run.ops[one.index]);
      if (op.kind() == "receive" && op.def->stream == ir::StreamKind::comm && !received(lane, one)) continue;
      complete(one, work.start_us, one.rank == work.last.rank ? run.cause[one.index] : work.last);
      if (op.kind() == "send" && op.def->stream == ir::StreamKind::comm) deliver(lane, one);
    }
  }

  // The host goes on: enqueues until it must wait for an op.
  void issue(int rank) {
    Run& run = runs_[static_cast<size_t>(rank)];
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
    Run& run = runs_[static_cast<size_t>(rank)];
    Lane& lane = run.lanes[static_cast<size_t>(stream)];
    if (lane.running || lane.met || lane.next == lane.ops.size()) return;
    const uint32_t index = lane.ops[lane.next];
    if (index >= run.issued) return;  // the host will wake us
    if (run.ops[index].issued_us > now_us_) return at(run.ops[index].issued_us, -1, rank, stream);
    const RecordedOp& recorded = run.recording->ops[index];
    if (!others_ended(run, recorded, stream)) return;
    run.cause[index] = cause_of({rank, index});
    const ir::Op& op = op_of(run.ops[index]);
    if (op.def->stream == ir::StreamKind::comm) {
      HEDDLE_CHECK(lane.member.group >= 0, "rank {} runs '{}' on '{}', which has no group", rank, op.kind(),
                   run.recording->streams[static_cast<size_t>(stream)]);
      if (op.def->collective) return meet(lane, {rank, index});
      peer_of(lane, op, rank);
    }
    // A stream that has slept until another woke it is late.
    const bool slept = now_us_ > std::max(lane.free_us, run.ops[index].issued_us);
    begin({.members = {{rank, index}},
           .left_us = recorded.duration_us + (slept ? input_.wake_us : 0),
           .threads = recorded.threads,
           .last = {rank, index}});
  }

  int peer_of(const Lane& lane, const ir::Op& op, int rank) const {
    const auto step = op.attributes.integer("step");
    const int64_t peer = lane.member.position + step;
    const Board& board = boards_[static_cast<size_t>(lane.member.group)];
    HEDDLE_CHECK(peer >= 0 && peer < std::ssize(board.ranks), "rank {} has no neighbour {:+}", rank, step);
    return static_cast<int>(peer);
  }

  // A send has ended: its letter lies there.
  void deliver(const Lane& lane, Link who) {
    Board& board = boards_[static_cast<size_t>(lane.member.group)];
    const int peer = peer_of(lane, op_of(runs_[static_cast<size_t>(who.rank)].ops[who.index]), who.rank);
    Board::Mail& mail = board.mail[{lane.member.position, peer}];
    mail.sent.push_back(who);
    if (!mail.waited_for) return;
    mail.waited_for = false;
    const int rank = board.ranks[static_cast<size_t>(peer)];
    Run& run = runs_[static_cast<size_t>(rank)];
    Lane& receives = run.lanes[static_cast<size_t>(lane_of(rank, lane.member))];
    const Link one{rank, receives.ops[receives.next]};
    ++mail.received;
    complete(one, std::max(run.ops[one.index].start_us, now_us_ - run.recording->ops[one.index].duration_us), who);
  }

  // A receive is over as far as it is up to it: is the letter there?
  bool received(const Lane& lane, Link one) {
    Run& run = runs_[static_cast<size_t>(one.rank)];
    Board& board = boards_[static_cast<size_t>(lane.member.group)];
    const int peer = peer_of(lane, op_of(run.ops[one.index]), one.rank);
    Board::Mail& mail = board.mail[{peer, lane.member.position}];
    if (mail.received < mail.sent.size()) {
      ++mail.received;
      return true;
    }
    mail.waited_for = true;
    run.ops[one.index].start_us = now_us_ - run.recording->ops[one.index].duration_us;  // at the earliest
    return false;
  }

  // The lane on which `rank` receives in the same group.
  int lane_of(int rank, const Member& member) const {
    const Run& run = runs_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < run.lanes.size(); ++i) {
      const bool receives = run.recording->streams[i].ends_with(".receive");
      if (receives && run.lanes[i].member.group == member.group) return static_cast<int>(i);
    }
    internal_error("rank {} is not in its group", rank);
  }

  // Whether all that the op waits for has ended; a lane that isn't there yet will wake us.
  bool others_ended(Run& run, const RecordedOp& op, int stream) {
    for (uint32_t w = op.first_wait; w < op.first_wait + op.waits; ++w) {
      const ir::Wait& wait = run.recording->waits[w];
      Lane& other = run.lanes[static_cast<size_t>(wait.stream)];
      if (other.next < wait.count) {
        other.sleepers.push_back(stream);
        return false;
      }
    }
    return true;
  }

  // Arrives at the group's next collective; the last to arrive begins it for all.
  void meet(Lane& lane, Link who) {
    lane.met = true;
    Board& board = boards_[static_cast<size_t>(lane.member.group)];
    const size_t turn = board.met[static_cast<size_t>(lane.member.position)]++;
    if (board.meetings.size() <= turn) board.meetings.resize(turn + 1);
    Board::Meeting& meeting = board.meetings[turn];
    meeting.arrived.push_back(who);
    if (meeting.arrived.size() < board.ranks.size()) return;
    Work work{.members = std::move(meeting.arrived), .last = who};
    bool slept = false;
    for (const Link& one : work.members) {
      Run& run = runs_[static_cast<size_t>(one.rank)];
      const RecordedOp& recorded = run.recording->ops[one.index];
      HEDDLE_CHECK(op_of(run.ops[one.index]).def == op_of(runs_[static_cast<size_t>(who.rank)].ops[who.index]).def,
                   "rank {} runs '{}' where rank {} runs '{}'", one.rank, op_of(run.ops[one.index]).kind(),
                   who.rank, op_of(runs_[static_cast<size_t>(who.rank)].ops[who.index]).kind());
      Lane& of = run.lanes[static_cast<size_t>(run.ops[one.index].stream)];
      of.met = false;
      slept = slept || now_us_ > std::max(of.free_us, run.ops[one.index].issued_us);
      work.left_us = std::max(work.left_us, recorded.duration_us);
      work.threads = std::max(work.threads, recorded.threads);
    }
    if (slept) work.left_us += input_.wake_us;
    begin(std::move(work));
  }

  // Whose end let an op begin that can begin now.
  Link cause_of(Link who) const {
    const Run& run = runs_[static_cast<size_t>(who.rank)];
    const RecordedOp& op = run.recording->ops[who.index];
    const Lane& lane = run.lanes[static_cast<size_t>(op.stream)];
    Link cause = lane.next > 0 && lane.free_us >= run.ops[who.index].issued_us
                     ? Link{who.rank, lane.ops[lane.next - 1]}
                     : kNobody;
    double from_us = std::max(lane.free_us, run.ops[who.index].issued_us);
    for (uint32_t w = op.first_wait; w < op.first_wait + op.waits; ++w) {
      const ir::Wait& wait = run.recording->waits[w];
      const uint32_t last = run.lanes[static_cast<size_t>(wait.stream)].ops[wait.count - 1];
      if (run.ops[last].end_us > from_us) {
        from_us = run.ops[last].end_us;
        cause = {who.rank, last};
      }
    }
    return cause;
  }

  void complete(Link who, double start_us, Link cause) {
    const auto [rank, index] = who;
    Run& run = runs_[static_cast<size_t>(rank)];
    SimulatedOp& op = run.ops[index];
    Lane& lane = run.lanes[static_cast<size_t>(op.stream)];
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

  Simulation finish() {
    Simulation result;
    Link last = kNobody;
    for (size_t r = 0; r < runs_.size(); ++r) {
      Run& run = runs_[r];
      RankResult& rank = result.ranks.emplace_back();
      for (uint32_t i = 0; i < run.ops.size(); ++i) {
        const SimulatedOp& op = run.ops[i];
        if (!op.ran) continue;
        rank.end_us = std::max(rank.end_us, op.end_us);
        if (last.rank < 0 || op.end_us > result.step_us) {
          result.step_us = op.end_us;
          last = {static_cast<int>(r), i};
        }
      }
      rank.host_stalled_us = run.stalled_us;
      rank.persistent_bytes = run.recording->persistent_bytes;
      rank.peak_live_bytes = run.recording->peak_live_bytes;
      rank.reserved_bytes = run.recording->reserved_bytes;
      rank.live_at_peak = run.recording->live_at_peak;
      rank.ops = std::move(run.ops);
    }
    for (size_t r = 0; r < runs_.size(); ++r) {
      for (size_t s = 0; s < runs_[r].lanes.size(); ++s) {
        const Lane& lane = runs_[r].lanes[s];
        const double idle_us = std::max(0.0, result.step_us - lane.busy_us - lane.waiting_us);
        result.ranks[r].streams.push_back({runs_[r].recording->streams[s], lane.busy_us, lane.waiting_us, idle_us});
      }
    }
    for (Link at = last; at.rank >= 0; at = runs_[static_cast<size_t>(at.rank)].cause[at.index]) {
      result.critical_path.push_back(at);
    }
    std::reverse(result.critical_path.begin(), result.critical_path.end());
    result.deadlock = deadlock(result);
    return result;
  }

  std::string deadlock(const Simulation& result) const {
    std::string report;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const Run& run = runs_[r];
      const auto name = [&](uint32_t index) {
        const SimulatedOp& op = result.ranks[r].ops[index];
        const ir::Stage& stage = program_.stages[static_cast<size_t>(op.stage)];
        return fmt::format("'{}' of {}, microbatch {}", op_of(op).kind(), stage.name, op.microbatch);
      };
      for (size_t s = 0; s < run.lanes.size(); ++s) {
        const Lane& lane = run.lanes[s];
        if (lane.next == lane.ops.size()) continue;
        const uint32_t index = lane.ops[lane.next];
        const RecordedOp& op = run.recording->ops[index];
        std::string why;
        if (index >= run.issued) {
          why = fmt::format("the host, which waits for {}", name(static_cast<uint32_t>(run.stalled_on)));
        }
        for (uint32_t w = op.first_wait; why.empty() && w < op.first_wait + op.waits; ++w) {
          const ir::Wait& wait = run.recording->waits[w];
          const Lane& other = run.lanes[static_cast<size_t>(wait.stream)];
          if (other.next < wait.count) {
            why = fmt::format("{} on {}", name(other.ops[wait.count - 1]),
                              run.recording->streams[static_cast<size_t>(wait.stream)]);
          }
        }
        if (why.empty()) why = absent_peers(lane, op);
        report += fmt::format("rank {}, {}: {} waits for {}\n", r, run.recording->streams[s], name(index), why);
      }
    }
    return report;
  }

  std::string absent_peers(const Lane& lane, const RecordedOp& recorded) const {
    const ir::Op& op = program_.stages[static_cast<size_t>(recorded.stage)].ops[recorded.op];
    const Board& board = boards_[static_cast<size_t>(lane.member.group)];
    if (!op.def->collective) {
      const int64_t peer = lane.member.position + op.attributes.integer("step");
      return fmt::format("a send of rank {}", board.ranks[static_cast<size_t>(peer)]);
    }
    std::string absent;
    const size_t turn = board.met[static_cast<size_t>(lane.member.position)] - 1;
    for (size_t i = 0; i < board.ranks.size(); ++i) {
      if (board.met[i] <= turn) absent += fmt::format("{}{}", absent.empty() ? "rank " : ", ", board.ranks[i]);
    }
    return absent;
  }

  const ir::StepProgram& program_;
  const SimulationInput& input_;
  std::vector<Run> runs_;
  std::vector<Board> boards_;
  std::deque<std::pair<int, int>> ready_;
  double now_us_ = 0;
  uint64_t turn_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Work> works_;
  std::vector<int> free_works_, sharing_;  // indices into works_; what runs at a speed that depends on the others
  int machines_ = 1;
};

}  // namespace

Simulation simulate(const ir::StepProgram& program, const SimulationInput& input) {
  return Simulator(program, input).simulate();
}

}  // namespace heddle::simulate
