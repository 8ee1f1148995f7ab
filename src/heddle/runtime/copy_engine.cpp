#include "heddle/runtime/copy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/comm/device_world.h"

namespace heddle::runtime {

namespace {

Support own_support(plan::CopyEngine asked, bool shares_memory, int ranks) {
  if (asked == plan::CopyEngine::off) return Support::no("it is off");
  if (!shares_memory) return Support::no("messages of this device.backend go from device to device");
  if (const Support core = comm::copy_core_available(); !core) return core;
  const comm::CopyCore& core = comm::copy_core();
  const int left = core.allowed - static_cast<int>(core.taken.size());
  if (asked == plan::CopyEngine::wherever && (core.allowed < kManyCores || left < ranks)) {
    return Support::no(
        fmt::format("a core for copies would be taken from {} processors that compute for {} ranks; \"on\" takes "
                    "it all the same",
                    core.allowed, ranks));
  }
  return Support::yes();
}

// The number of ranks on this rank's host.
int ranks_beside(const comm::World& world) {
  int count = 0;
  for (int r = 0; r < world.size(); ++r) count += world.node_of(r) == world.node_of(world.rank());
  return count;
}

std::string counted(int64_t messages, int64_t bytes) {
  return fmt::format("{} messages ({:.3g} MB)", messages, static_cast<double>(bytes) * 1e-6);
}

}  // namespace

int cores_for_copies(plan::CopyEngine asked, bool shares_memory, int ranks) {
  return own_support(asked, shares_memory, ranks) ? static_cast<int>(comm::copy_core().taken.size()) : 0;
}

CopyEngine::CopyEngine(const plan::OnDevice& asked, bool shares_memory, comm::World& world)
    : world_(world),
      choice_(asked.copy_engine),
      asked_(asked.copy_engine != plan::CopyEngine::off),
      selected_(Support::no("it is off")) {
  if (asked.copy_engine_kb > 0)
    least_bytes_ = std::max<int64_t>(1, static_cast<int64_t>(std::llround(asked.copy_engine_kb * 1e3)));
  if (!asked_ || !shares_memory) return;
  // Ranks of processes that are bound apart have cores of their own; to count all of the host is on the safe side.
  selected_ = comm::all_agree(world, own_support(choice_, shares_memory, ranks_beside(world)));
  comm::Reach reach;
  if (selected_) {
    reach = comm::find_reach(world);
    selected_ = reach.near;
  }
  refuse_if_on();
  if (!selected_) return;
  off_.emplace();
  world.move_on(comm::copy_core().core);
  engine_.emplace(world, comm::CopyWorker::of_process(), least_bytes_, std::move(reach));
}

void CopyEngine::refuse_if_on() const {
  if (!selected_ && choice_ == plan::CopyEngine::on)
    config_error("device.copy_engine is \"on\": {}", selected_.reason);
}

std::unique_ptr<comm::World> CopyEngine::over(std::unique_ptr<comm::World> device) {
  if (!asked_) return device;
  selected_ = comm::peer_copies_available(world_);
  refuse_if_on();
  if (!selected_) return device;
  return comm::with_peer_copies(std::move(device), world_, least_bytes_, on_device_);
}

std::string CopyEngine::selection_text() const {
  const std::string asked = fmt::format("asked for \"{}\"", word_of(choice_));
  if (!selected_) return fmt::format("{}, not taken: {}", asked, selected_.reason);
  const std::string where =
      engine_ ? fmt::format("on processor {}", comm::copy_core().core) : "by the devices' own engines";
  return fmt::format("{}, {} from {:.4g} kB on", asked, where, static_cast<double>(least_bytes_) * 1e-3);
}

std::string CopyEngine::text() const {
  if (!selected_) return selection_text();
  const comm::EngineTally t = tally();
  return fmt::format("{}: it moved {}, {} were too short, {} out of its reach", selection_text(),
                     counted(t.messages, t.bytes), counted(t.short_messages, t.short_bytes),
                     counted(t.far_messages, t.far_bytes));
}

}  // namespace heddle::runtime
