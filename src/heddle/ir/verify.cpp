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

}  // namespace

namespace {
void verify_actions(const StepProgram& program, const StepProgram::ActionLists& lists, int microbatches) {
  std::map<std::tuple<int, int, std::string>, std::pair<Traffic, Traffic>>
      links;  // (from, to, channel): sent, received
  for (size_t c = 0; c < lists.size(); ++c) {
    constexpr int kNever = -1;
    std::map<int, std::vector<int>> next_of;  // stage -> op -> next microbatch
    const auto first_of = [&](const Stage& stage, const Op& op,
                              int after) {  // microbatch of the chunk, or after it
      if (once_a_step(op.phase)) return after;
      const Chunk& chunk = stage.chunks.at(static_cast<size_t>(op.chunk));
      return microbatches * (chunk.route + after) / chunk.routes;
    };
    std::map<int, std::vector<std::vector<uint8_t>>> written;  // stage -> microbatch + 1 -> value
    bool ended = false;
    for (const Action& action : lists[c]) {
      HEDDLE_CHECK(action.block >= 0 && static_cast<size_t>(action.block) < program.blocks.size(),
                   "action of class {} names block {}", c, action.block);
      const Block& block = program.blocks[static_cast<size_t>(action.block)];
      HEDDLE_CHECK(action.microbatches.size() == block.stages.size(), "action {} binds {} microbatches, needs {}",
                   block.name, action.microbatches.size(), block.stages.size());
      for (const Step& step : block.steps) {
        const int s = block.stages[step.slot], microbatch = action.microbatches[step.slot];
        const Stage& stage = program.stages[static_cast<size_t>(s)];
        const Op& op = stage.ops[step.op];
        const bool end = op.phase == Phase::end, once = once_a_step(op.phase);
        HEDDLE_CHECK(once == (microbatch == -1) && microbatch < program.microbatches, "{}: microbatch {}",
                     block.name, microbatch);
        HEDDLE_CHECK(once || !ended, "{}: microbatch {} after the end of the step", block.name, microbatch);
        ended = ended || end;
        std::vector<int>& nexts = next_of.try_emplace(s, stage.ops.size(), kNever).first->second;
        int& next = nexts[step.op];
        if (next == kNever) next = first_of(stage, op, 0);
        HEDDLE_CHECK(once ? next == 0 : next == microbatch, "{}: '{}' runs microbatch {}, expected {}", block.name,
                     text_of(stage, op), microbatch, next);
        ++next;
        auto& frames = written[s];
        frames.resize(static_cast<size_t>(program.microbatches) + 1);
        auto& values = frames[static_cast<size_t>(microbatch + 1)];
        values.resize(stage.values.size());
        for (const ValueId id : op.in) {
          HEDDLE_CHECK(id == none || is_persistent(stage.value(id).role) || values[static_cast<size_t>(id)],
                       "{}: '{}' reads '{}' of microbatch {} before it is written", block.name, text_of(stage, op),
                       stage.value(id).name, microbatch);
        }
        for (const ValueId id : op.out) values[static_cast<size_t>(id)] = 1;
        if (is_message(op.def->moves)) {
          const int step_by = static_cast<int>(op.attributes.integer("step"));
          const bool sends = op.def->moves == Moves::to_neighbour;
          const int here = static_cast<int>(c), there = here + step_by;
          auto& [sent, received] =
              links[{sends ? here : there, sends ? there : here, channel_of_stream(stream_name(op))}];
          (sends ? sent : received)
              .emplace_back(op.attributes.integer_or("edge", 0), op.attributes.integer_or("state", 0), microbatch);
        }
      }
    }
    for (const auto& [s, frames] : written) {
      const Stage& stage = program.stages[static_cast<size_t>(s)];
      const std::vector<int>& nexts = next_of.at(s);
      bool begins_only = true;
      for (uint32_t i = 0; i < stage.ops.size(); ++i)
        begins_only = begins_only && (nexts[i] == kNever || stage.ops[i].phase == Phase::begin);
      for (uint32_t i = 0; i < stage.ops.size() && !begins_only; ++i) {
        const int first = first_of(stage, stage.ops[i], 0), wanted = first_of(stage, stage.ops[i], 1);
        const int next = nexts[i] == kNever ? first : nexts[i];
        HEDDLE_CHECK(next == wanted, "stage {}: '{}' runs {} of {} times", s, text_of(stage, stage.ops[i]),
                     next - first, wanted - first);
      }
    }
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
