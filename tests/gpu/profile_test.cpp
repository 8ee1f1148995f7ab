// The profile of a device that has memory of its own, from its measurement to a step predicted by it, in the
// emulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "heddle/base/files/output_file.h"
#include "heddle/planner/device/measure_device.h"
#include "heddle/planner/machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/measured_rates.h"
#include "heddle/planner/profile_file.h"
#include "tests/gpu/opened_seats.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"

namespace heddle::planner {
namespace {

// As small as programs get: the emulator runs each thread of a block as a fiber.
constexpr double kMostFlops = 3e7;
constexpr int64_t kMemoryBytes = 1 << 28;

/// While it lives, devices have memory of their own.
struct Apart {
  Apart() { test::memory_apart() = true; }
  ~Apart() { test::memory_apart() = false; }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
};

const cost::MachineProfile& measured() {
  static const cost::MachineProfile profile = [] {
    const Apart apart;
    return measure_device(
        {.seconds = 0, .backend = "cuda"},
        {.most_flops = kMostFlops, .wide = 1, .copy_bytes = 1 << 16, .memory_bytes = kMemoryBytes});
  }();
  return profile;
}

config::RunConfig small_run(const std::string& backend) {
  config::RunConfig c;
  c.model = test::small_model();
  c.train.global_batch = 4;
  c.train.microbatch = 2;
  c.train.sequence_length = 16;
  c.device.backend = backend;
  return c;
}

TEST(DeviceProfile, HasWhatAStepTakes) {
  const cost::MachineProfile& p = measured();
  EXPECT_EQ(p.backend, "cuda");
  EXPECT_EQ(p.cores, 1);
  for (const double rate : {p.bf16_flops_per_s, p.f32_flops_per_s, p.copy_bytes_per_s, p.host_copy_bytes_per_s})
    EXPECT_GT(rate, 0);
  EXPECT_GT(p.enqueue_us, 0);
  std::set<std::pair<std::string, Dtype>> kinds;
  for (const cost::OpTime& op : p.ops.all()) {
    kinds.emplace(op.shape.kind, op.shape.dtype);
    EXPECT_EQ(op.threads, 1) << op.shape.kind;
  }
  for (const char* kind : {"linear", "linear_wgrad", "grouped_linear", "attention", "permute"}) {
    EXPECT_TRUE(kinds.contains({kind, Dtype::bf16})) << kind;
    EXPECT_TRUE(kinds.contains({kind, Dtype::f32})) << kind;
  }
  const bool joined =
      std::any_of(kinds.begin(), kinds.end(), [](const auto& k) { return k.first == "adamw_many"; });
  EXPECT_TRUE(joined) << "what it is reckoned by is what would run";
}

TEST(DeviceProfile, IsOfMemoryThatTheHostDoesNotReach) {
  const Apart apart;
  const auto device = device::cuda_device({});
  const auto arena = device->arena(1 << 20);
  arena->reach(1);
  EXPECT_EXIT(static_cast<volatile std::byte*>(arena->base())[0] = std::byte{1}, testing::KilledBySignal(SIGSEGV),
              "");
  const int from = 7;
  int back = 0;
  device->upload(arena->base(), &from, sizeof from);
  device->download(&back, arena->base(), sizeof back);
  EXPECT_EQ(back, from);
}

// Programs of other sizes and fusions, and no shared expert, in memory that the host does not reach.
TEST(DeviceProfile, MeasuresEveryDrawnProgram) {
  const Apart apart;
  for (uint64_t number = 2; number < 6; ++number) {
    train::TrainerOptions program =
        draw_program(number, number % 2 == 0 ? Dtype::f32 : Dtype::bf16, 1, kMostFlops, 1);
    program.backend = "cuda";
    program.memory_bytes = kMemoryBytes;
    SCOPED_TRACE(fmt::format("{} with {} fusions", number, program.plan.fusions.size()));
    const StepMeasure found = measure_steps(program, 1);
    EXPECT_FALSE(found.ops.empty());
    EXPECT_GT(found.step_us, 0);
  }
}

// One program that fails is left out by name; three in a row end the measurement.
TEST(DeviceProfile, NamesProgramsThatFail) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(
      measure_device({.seconds = 0, .backend = "cuda"},
                     {.most_flops = kMostFlops, .wide = 1, .copy_bytes = 1 << 16, .memory_bytes = 1 << 12}),
      Error);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning: program 0 in f32 is left out: out of device memory"), std::string::npos) << said;
  EXPECT_NE(said.find("warning: program 1 in bf16 is left out: out of device memory"), std::string::npos) << said;
}

TEST(DeviceProfile, IsReadBackAndForetellsAStep) {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "profile.json").string();
  write_file(path, profile_text(measured()));
  const cost::MachineProfile read = machine_profile(path, 1, "cuda");
  EXPECT_EQ(profile_text(read), profile_text(measured()));
  EXPECT_THROW((void)machine_profile(path, 1, "host"), ConfigError);

  const ConfigPrediction one = predict_config(small_run("cuda"), read);
  EXPECT_GT(one.prediction.step_us, 0);
  cost::MachineProfile slower = read;
  slower.ops = {};
  for (cost::OpTime op : read.ops.all()) {
    op.us *= 10;
    slower.ops.add(op);
  }
  EXPECT_GT(predict_config(small_run("cuda"), slower).prediction.step_us, 5 * one.prediction.step_us);
}

// No thread of the host slows a device down: two ranks with a device each take no longer than one.
TEST(DeviceProfile, DevicesShareNoCores) {
  config::RunConfig c = small_run("cuda");
  c.plan.mesh.dp = 2;
  cost::MachineProfile p = measured();
  p.links = {{cost::Link::threads, 2, 1024, 0.01}, {cost::Link::threads, 2, 1 << 20, 0.02}};
  c.train.global_batch = 8;
  const double two = predict_config(c, p).prediction.step_us,
               one = predict_config(small_run("cuda"), p).prediction.step_us;
  EXPECT_LT(two, 1.5 * one);
}

TEST(DeviceProfile, RatesOfADevice) {
  const config::RunConfig with = rated(small_run("cuda"), measured()), apart = rated(small_run("host"), measured());
  EXPECT_NEAR(with.plan.device.memory_rate, measured().copy_bytes_per_s * 1e-9,
              1e-3 * with.plan.device.memory_rate);
  EXPECT_NEAR(with.plan.memory.host_rate, measured().host_copy_bytes_per_s / 2 * 1e-9,
              1e-3 * with.plan.memory.host_rate);
  EXPECT_EQ(apart.plan.device.memory_rate, 0) << "of another device than was measured";
}

}  // namespace
}  // namespace heddle::planner
