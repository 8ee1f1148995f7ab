// Values that go to the host and come back: the same bits, every byte of both arenas foretold, in arenas so tight
// that a missing wait would show.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heddle/backends/backend.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/schedule/lower.h"
#include "heddle/simulate/recording.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

constexpr int64_t kRoom = 1 << 24;

// Appends a copy and moves it to `place`.
ir::ValueId copy(ir::Listing& listing, const char* kind, ir::ValueId x, size_t place, ir::Phase phase) {
  ir::Op op;
  op.def = &ops::find(kind);
  op.in = {x};
  op.phase = phase;
  const ir::ValueId y =
      listing.append(std::move(op), {listing.value(x).name + (kind[5] == 'o' ? ".host" : ".back")})[0];
  std::rotate(listing.ops.begin() + static_cast<ptrdiff_t>(place), listing.ops.end() - 1, listing.ops.end());
  return y;
}

// Sends every activation that the backward reads to the host once it is written, and fetches it before its first
// reader there. Returns the bytes that go each way for a microbatch.
int64_t offload(ir::Listing& listing) {
  std::set<ir::ValueId> wanted;
  std::map<ir::ValueId, ir::Phase> written_in;
  for (const ir::Op& op : listing.ops) {
    for (const ir::ValueId id : op.out) written_in[id] = op.phase;
    for (const ir::ValueId id : op.in) {
      const bool backward = op.phase == ir::Phase::I || op.phase == ir::Phase::W;
      if (id != ir::none && backward && listing.value(id).role == ir::Role::activation && written_in.contains(id) &&
          written_in[id] == ir::Phase::F) {
        wanted.insert(id);
      }
    }
  }
  int64_t bytes = 0;
  for (const ir::ValueId id : wanted) {
    const auto writer = std::find_if(listing.ops.begin(), listing.ops.end(), [&](const ir::Op& op) {
      return std::find(op.out.begin(), op.out.end(), id) != op.out.end();
    });
    const ir::ValueId out =
        copy(listing, "copy_out", id, static_cast<size_t>(writer - listing.ops.begin()) + 1, ir::Phase::F);
    // I runs before W, whatever their order in the list.
    auto reader = listing.ops.end();
    for (const ir::Phase phase : {ir::Phase::W, ir::Phase::I}) {
      const auto found = std::find_if(listing.ops.begin(), listing.ops.end(), [&](const ir::Op& op) {
        return op.phase == phase && std::find(op.in.begin(), op.in.end(), id) != op.in.end();
      });
      if (found != listing.ops.end() && (reader == listing.ops.end() || found < reader)) reader = found;
    }
    const auto place = static_cast<size_t>(reader - listing.ops.begin());
    const ir::Phase phase =
        std::any_of(listing.ops.begin(), listing.ops.end(),
                    [&](const ir::Op& op) {
                      return op.phase == ir::Phase::I && std::find(op.in.begin(), op.in.end(), id) != op.in.end();
                    })
            ? ir::Phase::I
            : ir::Phase::W;
    const ir::ValueId back = copy(listing, "copy_in", out, place, phase);
    for (ir::Op& op : listing.ops) {
      if (op.phase != ir::Phase::F) std::replace(op.in.begin(), op.in.end(), id, back);
    }
    bytes += listing.bytes(id, ir::FixedRows());
  }
  return bytes;
}

class HostArena : public testing::Test {
 protected:
  HostArena() {
    plain = plan::lower(config, plan);
    offloaded.listings = plain.program.listings;
    offloaded.microbatches = plan.microbatches;
    bytes = offload(offloaded.listings[0]);
    schedule::lower(offloaded, offloaded.actions[0], plan::schedule_of(plan));
  }

  simulate::RecordOptions options(const ir::StepProgram& program) {
    simulate::RecordOptions made;
    made.steps = 3;
    made.scratch_bytes = [&program](int s, uint32_t i, const ir::RowCounts& rows) -> int64_t {
      const ir::Listing& listing = program.listings[static_cast<size_t>(s)];
      const kernels::KernelEntry& kernel = backends::named("reference").select_kernel(listing, listing.ops[i]);
      return kernel.scratch_bytes ? kernel.scratch_bytes(listing, listing.ops[i], rows) : 0;
    };
    return made;
  }

  std::unique_ptr<runtime::Executor> executor(const ir::StepProgram& program, int64_t capacity, int64_t on_host) {
    runtime::ExecutorOptions made;
    made.backend = "reference";
    made.capacity_bytes = capacity;
    made.host_capacity_bytes = on_host;
    made.poison = true;
    return std::make_unique<runtime::Executor>(program, made);
  }

  // Losses and gradients of the last of a few steps.
  std::vector<double> results(runtime::Executor& executor, const ir::Listing& listing) {
    const std::vector<double> table = model::rope_table(config, kTinySequence);
    for (const model::Parameter& p : plain.parameters[0]) {
      const device::TensorView view = executor.view(0, listing.find(plain.program.listings[0].value(p.value).name));
      for (int64_t i = 0; i < view.elements(); ++i) {
        const auto at = static_cast<uint64_t>(i);
        TinyRun::set(view, i,
                     p.start == model::Parameter::Start::rope_table ? table[at]
                     : p.start == model::Parameter::Start::ones     ? 1.0
                                                                    : 0.3 * RandomKey(9).with(p.name).normal(at));
      }
    }
    for (size_t v = 0; v < listing.values.size(); ++v) {
      if (listing.values[v].role != ir::Role::optimizer) continue;
      const device::TensorView view = executor.view(0, static_cast<ir::ValueId>(v));
      for (int64_t i = 0; i < view.elements(); ++i) TinyRun::set(view, i, 0.0);
    }
    const std::vector<Batch> batches = tiny_batches(config, plan, 9);
    for (int step = 0; step < 3; ++step) executor.run_step(inputs_of(batches[0], executor));
    std::vector<double> all;
    for (const ir::Value& value : listing.values) {
      if (value.role != ir::Role::accumulator && value.role != ir::Role::statistic) continue;
      const device::TensorView view = executor.view(0, listing.find(value.name));
      for (int64_t i = 0; i < view.elements(); ++i) all.push_back(TinyRun::get(view, i));
    }
    return all;
  }

  model::ModelConfig config = tiny_model();
  plan::Plan plan = tiny_plan(1, 1, true);
  plan::Lowered plain;
  ir::StepProgram offloaded;
  int64_t bytes = 0;
};

TEST_F(HostArena, WhatWentAndCameBackIsTheSame) {
  ir::verify(offloaded);
  const auto one = executor(plain.program, kRoom, 0);
  const auto other = executor(offloaded, kRoom, kRoom);
  const std::vector<double> expected = results(*one, plain.program.listings[0]);
  EXPECT_EQ(results(*other, offloaded.listings[0]), expected);
  EXPECT_FALSE(one->walk().uses(ir::Space::host));
  EXPECT_EQ(one->walk().copied_out_bytes(), 0);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(other->walk().copied_out_bytes(), bytes * plan.microbatches);
  EXPECT_EQ(other->walk().copied_in_bytes(), bytes * plan.microbatches);
}

TEST_F(HostArena, BothArenasArePredictedToTheByte) {
  simulate::RecordOptions o = options(offloaded);
  o.capacity_bytes = kRoom;
  o.host_capacity_bytes = kRoom;
  const simulate::Recording predicted = simulate::record(offloaded, 0, o);
  const auto run = executor(offloaded, kRoom, kRoom);
  results(*run, offloaded.listings[0]);
  const ir::Walk& walk = run->walk();
  EXPECT_EQ(predicted.peak_live_bytes, walk.storage().peak_live_bytes());
  EXPECT_EQ(predicted.reserved_bytes, walk.storage().reserved_bytes());
  EXPECT_EQ(predicted.host_peak_live_bytes, walk.storage(ir::Space::host).peak_live_bytes());
  EXPECT_EQ(predicted.host_reserved_bytes, walk.storage(ir::Space::host).reserved_bytes());
  EXPECT_EQ(predicted.copied_out_bytes, walk.copied_out_bytes());
  EXPECT_EQ(walk.storage(ir::Space::host).live_bytes(), 0);
  // What lies on the host is rounded up to whole places; one microbatch is there at a time.
  EXPECT_GE(predicted.host_peak_live_bytes, bytes);
  EXPECT_LE(predicted.host_peak_live_bytes,
            bytes + 128 * static_cast<int64_t>(offloaded.listings[0].values.size()));
  EXPECT_LT(predicted.peak_live_bytes, simulate::record(plain.program, 0, options(plain.program)).peak_live_bytes);
  const std::set<std::string> streams(predicted.streams.begin(), predicted.streams.end());
  EXPECT_EQ(streams, (std::set<std::string>{"compute", "copy_out", "copy_in"}));
}

TEST_F(HostArena, TightArenasGiveTheSameBits) {
  simulate::RecordOptions o = options(offloaded);
  const auto fits = [&] {
    try {
      simulate::record(offloaded, 0, o);
      return true;
    } catch (const ir::OutOfMemory&) {
      return false;
    }
  };
  const simulate::Recording roomy = simulate::record(offloaded, 0, o);
  for (o.host_capacity_bytes = roomy.host_peak_live_bytes; !fits();) o.host_capacity_bytes += ir::kStorageAlignment;
  for (o.capacity_bytes = roomy.peak_live_bytes; !fits();) o.capacity_bytes += ir::kStorageAlignment;
  const auto one = executor(plain.program, kRoom, 0);
  const auto other = executor(offloaded, o.capacity_bytes, o.host_capacity_bytes);
  EXPECT_EQ(results(*other, offloaded.listings[0]), results(*one, plain.program.listings[0]));
}

TEST_F(HostArena, AFullHostIsTold) {
  simulate::RecordOptions o = options(offloaded);
  o.host_capacity_bytes = simulate::record(offloaded, 0, o).host_peak_live_bytes - ir::kStorageAlignment;
  try {
    simulate::record(offloaded, 0, o);
    FAIL() << "it fits";
  } catch (const ir::OutOfMemory& error) {
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with("out of host memory: '")) << what;
    EXPECT_NE(what.find(".host "), std::string::npos) << what;
  }
}

TEST_F(HostArena, OnlyCopiesTouchTheHost) {
  ir::Listing& listing = offloaded.listings[0];
  const auto fetch =
      std::find_if(listing.ops.begin(), listing.ops.end(), [](const ir::Op& op) { return op.kind() == "copy_in"; });
  const ir::ValueId host = fetch->in[0], back = fetch->out[0];
  for (ir::Op& op : listing.ops) std::replace(op.in.begin(), op.in.end(), back, host);
  try {
    ir::verify(listing);
    FAIL() << "verified";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("lies on the host"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heddle::test
