// The choice of a copy engine for a run's messages (device.copy_engine): what was asked for, what the ranks have
// agreed on and why, and what went which way.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/plan/choices.h"

namespace heddle::runtime {

/// The bytes from which a message uses the engine where nothing was measured. Two letters and a waking worker take
/// about as much of the threads that compute as to copy so much.
inline constexpr int64_t kUsualEngineBytes = 64 << 10;
/// Least processors of a process of which `auto` gives one to copies.
inline constexpr int kManyCores = 8;

/// Processors that this process gives to copies, out of those that kernels would compute on. `ranks`: ranks that
/// share them.
int cores_for_copies(plan::CopyEngine asked, bool shares_memory, int ranks);

class CopyEngine {
 public:
  /// All ranks of the world make one together, of the same choices; each keeps its own thread, and what that starts
  /// from now on, off the copies' core. `shares_memory`: whether messages lie in the host's memory. ConfigError on
  /// all where the engine was asked for and one rank can't have it. The world outlives it, and it what it makes.
  CopyEngine(const plan::OnDevice& asked, bool shares_memory, comm::World& world);

  /// Returns a device world whose messages the devices' copy engines move where that was asked for and can be had;
  /// else the world as it is. All ranks call it together, with their devices chosen. ConfigError as above.
  std::unique_ptr<comm::World> over(std::unique_ptr<comm::World> device);
  /// The world for messages that lie in the host's memory.
  comm::World& world() { return engine_ ? static_cast<comm::World&>(*engine_) : world_; }
  bool asked() const { return asked_; }
  comm::EngineTally tally() const { return engine_ ? engine_->tally() : on_device_.tally(); }
  /// `asked for "on", on processor 7 from 65.5 kB on`: one line.
  std::string selection_text() const;
  /// The selection, and what went which way so far.
  std::string text() const;

 private:
  comm::World& world_;
  plan::CopyEngine choice_;
  int64_t least_bytes_ = kUsualEngineBytes;
  bool asked_ = false;
  Support selected_;  // that there is an engine, or why not
  void refuse_if_on() const;
  comm::EngineCounts on_device_;
  std::optional<comm::OffCopyCore> off_;
  std::optional<comm::EngineWorld> engine_;
};

}  // namespace heddle::runtime
