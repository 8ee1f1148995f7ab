#include "heddle/ir/verify.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/ir/print.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

namespace {

void verify_inference(const Stage& stage, const Op& op) {
  check_names(op);
  const std::vector<Value> expected = op.def->infer(stage, op);
  HEDDLE_CHECK(expected.size() == op.out.size(), "'{}' has {} outputs, its definition {}", text_of(stage, op),
               op.out.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Value& found = stage.value(op.out[i]);
    HEDDLE_CHECK(
        found.dtype == expected[i].dtype && found.shape == expected[i].shape && found.space == expected[i].space,
        "'{}': output '{}' is {}, inferred {}", text_of(stage, op), found.name, text_of(stage, found),
        text_of(stage, expected[i]));
  }
}

// Only the copies between the arenas touch what lies on the host.
void verify_spaces(const Stage& stage, const Op& op) {
  const auto hold = [&](const std::vector<ValueId>& ids, Moves copy) {
    for (const ValueId id : ids) {
      if (id == none) continue;
      const Space wanted = op.def->moves == copy ? Space::host : Space::device;
      HEDDLE_CHECK(stage.value(id).space == wanted, "'{}': '{}' lies on the {}", text_of(stage, op),
                   stage.value(id).name, name_of(stage.value(id).space));
    }
  };
  hold(op.in, Moves::from_host);
  hold(op.out, Moves::to_host);
  for (const ValueId id : op.updates) {
    HEDDLE_CHECK(stage.value(id).space == Space::device, "'{}' updates '{}' on the host", text_of(stage, op),
                 stage.value(id).name);
  }
}

}  // namespace

void verify(const Stage& stage) {
  std::vector<int> writers(stage.values.size(), 0);
  std::vector<Phase> written_in(stage.values.size(), Phase::F);
  for (const Op& op : stage.ops) {
    verify_inference(stage, op);
    verify_spaces(stage, op);
    for (const ValueId id : op.in) {
      if (id == none) continue;
      const Value& value = stage.value(id);
      if (is_persistent(value.role)) continue;
      HEDDLE_CHECK(writers[static_cast<size_t>(id)] == 1, "'{}' reads '{}' before it is written",
                   text_of(stage, op), value.name);
      HEDDLE_CHECK(written_in[static_cast<size_t>(id)] <= op.phase, "'{}' in phase {} reads '{}' of phase {}",
                   text_of(stage, op), name_of(op.phase), value.name, name_of(written_in[static_cast<size_t>(id)]));
      const Phase written = written_in[static_cast<size_t>(id)];
      HEDDLE_CHECK((!once_a_step(op.phase) && !once_a_step(written)) || written == op.phase,
                   "'{}' in phase {} reads '{}' of phase {}", text_of(stage, op), name_of(op.phase), value.name,
                   name_of(written));
      for (const Dim& dim : value.shape) {
        HEDDLE_CHECK(dim.is_static() || writers[static_cast<size_t>(dim.rows_of)] == 1,
                     "'{}' has rows that '{}' counts too late", value.name, stage.value(dim.rows_of).name);
      }
    }
    for (const ValueId id : op.mentions) {
      HEDDLE_CHECK(writers.at(static_cast<size_t>(id)) == 1, "'{}' mentions '{}' before it is written",
                   text_of(stage, op), stage.value(id).name);
    }
    for (const ValueId id : op.out) {
      HEDDLE_CHECK(!is_persistent(stage.value(id).role), "'{}' writes the persistent '{}' as an output",
                   text_of(stage, op), stage.value(id).name);
      HEDDLE_CHECK(++writers[static_cast<size_t>(id)] == 1, "'{}' is written twice", stage.value(id).name);
      written_in[static_cast<size_t>(id)] = op.phase;
    }
    for (const ValueId id : op.updates) {
      const Value& value = stage.value(id);
      HEDDLE_CHECK(is_persistent(value.role), "'{}' updates '{}', which does not persist", text_of(stage, op),
                   value.name);
      HEDDLE_CHECK(value.role != Role::accumulator || ++writers[static_cast<size_t>(id)] == 1,
                   "accumulator '{}' has two writers", value.name);
    }
  }
  for (const auto& [weight, accumulators] : stage.accumulators) {
    for (const ValueId id : accumulators) {
      HEDDLE_CHECK(writers[static_cast<size_t>(id)] == 1, "accumulator '{}' has no writer", stage.value(id).name);
    }
  }
}

namespace {

// What one rank puts on and takes off one pipeline channel, in order: (the stage that it comes from, which of its
// states, microbatch).
using Traffic = std::vector<std::tuple<int64_t, int64_t, int>>;
// (from, to, channel): sent, received
using Links = std::map<std::tuple<int, int, std::string>, std::pair<Traffic, Traffic>>;

// The actions of one class of ranks, for one purpose.
class ActionsVerifier {
 public:
  ActionsVerifier(const StepProgram& program, int rank_class, int microbatches, Links& links)
      : program_(program), class_(rank_class), microbatches_(microbatches), links_(links) {}

  void verify(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      HEDDLE_CHECK(action.block >= 0 && static_cast<size_t>(action.block) < program_.blocks.size(),
                   "action of class {} names block {}", class_, action.block);
      const Block& block = program_.blocks[static_cast<size_t>(action.block)];
      HEDDLE_CHECK(action.microbatches.size() == block.stages.size(), "action {} binds {} microbatches, needs {}",
                   block.name, action.microbatches.size(), block.stages.size());
      for (const Step& step : block.steps) run(block, step, action.microbatches[step.slot]);
    }
    for (const auto& [stage, ran] : ran_) all_have_run(stage, ran);
  }

 private:
  struct Ran {
    std::vector<int> next;                      // by op: the microbatch that it runs next; kNever before it has run
    std::vector<std::vector<uint8_t>> written;  // by microbatch + 1 and value
  };
  static constexpr int kNever = -1;

  const Stage& stage_of(int index) const { return program_.stages[static_cast<size_t>(index)]; }

  // The microbatch that an op of a chunk runs first, and the one after its last.
  int first_of(const Stage& stage, const Op& op) const { return bound_of(stage, op, 0); }
  int end_of(const Stage& stage, const Op& op) const { return bound_of(stage, op, 1); }
  int bound_of(const Stage& stage, const Op& op, int after) const {
    if (once_a_step(op.phase)) return after;
    const Chunk& chunk = stage.chunks.at(static_cast<size_t>(op.chunk));
    return microbatches_ * (chunk.route + after) / chunk.routes;
  }

  void run(const Block& block, const Step& step, int microbatch) {
    const int index = block.stages[step.slot];
    const Stage& stage = stage_of(index);
    const Op& op = stage.ops[step.op];
    Ran& ran = ran_[index];
    if (ran.next.empty()) {
      ran.next.assign(stage.ops.size(), kNever);
      ran.written.assign(static_cast<size_t>(program_.microbatches) + 1,
                         std::vector<uint8_t>(stage.values.size(), 0));
    }
    in_order(block, stage, op, microbatch, ran.next[step.op]);
    reads_what_is_written(block, stage, op, microbatch, ran.written[static_cast<size_t>(microbatch + 1)]);
    if (is_message(op.def->moves)) note_message(op, microbatch);
  }

  void in_order(const Block& block, const Stage& stage, const Op& op, int microbatch, int& next) {
    const bool once = once_a_step(op.phase);
    HEDDLE_CHECK(once == (microbatch == -1) && microbatch < program_.microbatches, "{}: microbatch {}", block.name,
                 microbatch);
    HEDDLE_CHECK(once || !ended_, "{}: microbatch {} after the end of the step", block.name, microbatch);
    ended_ = ended_ || op.phase == Phase::end;
    if (next == kNever) next = first_of(stage, op);
    HEDDLE_CHECK(next == (once ? 0 : microbatch), "{}: '{}' runs microbatch {}, expected {}", block.name,
                 text_of(stage, op), microbatch, next);
    ++next;
  }

  static void reads_what_is_written(const Block& block, const Stage& stage, const Op& op, int microbatch,
                                    std::vector<uint8_t>& written) {
    for (const ValueId id : op.in) {
      HEDDLE_CHECK(id == none || is_persistent(stage.value(id).role) || written[static_cast<size_t>(id)],
                   "{}: '{}' reads '{}' of microbatch {} before it is written", block.name, text_of(stage, op),
                   stage.value(id).name, microbatch);
    }
    for (const ValueId id : op.out) written[static_cast<size_t>(id)] = 1;
  }

  void note_message(const Op& op, int microbatch) {
    const bool sends = op.def->moves == Moves::to_neighbour;
    const int there = class_ + static_cast<int>(op.attributes.integer("step"));
    auto& [sent, received] =
        links_[{sends ? class_ : there, sends ? there : class_, channel_of_stream(stream_name(op))}];
    (sends ? sent : received)
        .emplace_back(op.attributes.integer_or("edge", 0), op.attributes.integer_or("state", 0), microbatch);
  }

  // A stage of which no more than the beginning runs belongs to another purpose.
  void all_have_run(int index, const Ran& ran) const {
    const Stage& stage = stage_of(index);
    bool begins_only = true;
    for (size_t i = 0; i < stage.ops.size(); ++i)
      begins_only = begins_only && (ran.next[i] == kNever || stage.ops[i].phase == Phase::begin);
    for (size_t i = 0; i < stage.ops.size() && !begins_only; ++i) {
      const int first = first_of(stage, stage.ops[i]), end = end_of(stage, stage.ops[i]);
      const int next = ran.next[i] == kNever ? first : ran.next[i];
      HEDDLE_CHECK(next == end, "stage {}: '{}' runs {} of {} times", index, text_of(stage, stage.ops[i]),
                   next - first, end - first);
    }
  }

  const StepProgram& program_;
  const int class_, microbatches_;
  Links& links_;
  std::map<int, Ran> ran_;  // by stage
  bool ended_ = false;
};

void verify_actions(const StepProgram& program, const StepProgram::ActionLists& lists, int microbatches) {
  Links links;
  for (size_t c = 0; c < lists.size(); ++c) {
    ActionsVerifier(program, static_cast<int>(c), microbatches, links).verify(lists[c]);
  }
  for (const auto& [link, traffic] : links) {
    HEDDLE_CHECK(traffic.first == traffic.second, "sends and receives from pipeline rank {} to {} differ on {}",
                 std::get<0>(link), std::get<1>(link), std::get<2>(link));
  }
}

}  // namespace

void verify(const StepProgram& program) {
  for (const Stage& stage : program.stages) {
    verify(stage);
    for (const Value& value : stage.values) {
      if (value.shared_with_stage < 0) continue;
      const Stage& owner = program.stages.at(static_cast<size_t>(value.shared_with_stage));
      const ValueId id = owner.find(value.name);
      HEDDLE_CHECK(id != none && is_persistent(value.role) && owner.value(id).shape == value.shape &&
                       owner.value(id).dtype == value.dtype && owner.value(id).layout == value.layout &&
                       owner.value(id).space == value.space,
                   "'{}' of {} is not that of {}", value.name, stage.name, owner.name);
    }
  }
  for (int p = 0; p < kPurposes; ++p) {
    const bool train = static_cast<Purpose>(p) == Purpose::train;
    verify_actions(program, program.actions[static_cast<size_t>(p)], train ? program.microbatches : 1);
  }
}

}  // namespace heddle::ir
