// A run of launches on one stream that wait for nothing between them. A device may keep it as one graph and put it
// on the stream again at once, where a later step has the same run.
//
// Two runs are the same when their keys are. The key takes in everything that an entry can see (kernel, op,
// addresses and sizes of operands and scratch), 128 bits of it.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "heddle/base/hash.h"
#include "heddle/device/stream.h"
#include "heddle/ir/listing.h"
#include "heddle/ir/op.h"

namespace heddle::device {

/// True if a launch puts the same on its stream each time. Messages don't, for they depend on counts that the host
/// knows. An op that loads an input finds other values of the host at each launch. One that calls the host hands it
/// work of that launch alone (ir::OpDef). And rows that are counted at run time seldom come in the same number
/// again.
inline bool repeatable(const Launch& launch) {
  const ir::Op* op = launch.call.op;
  return launch.call.communicator == nullptr && op != nullptr && launch.rows < 0 && !op->def->loads &&
         !op->def->calls_host;
}

class LaunchRun {
 public:
  using Key = std::array<uint64_t, 2>;
  static constexpr size_t kMost = 64;  // beyond that a device without work would wait for the host to list it

  void add(const Launch& launch) {
    Kept& kept = kept_.emplace_back();
    kept.launch = launch;
    kept.in.assign(launch.call.in.begin(), launch.call.in.end());
    kept.out.assign(launch.call.out.begin(), launch.call.out.end());
    kept.updates.assign(launch.call.updates.begin(), launch.call.updates.end());
    take_in(reinterpret_cast<uintptr_t>(launch.run));
    take_in(reinterpret_cast<uintptr_t>(launch.call.of_stretch));
    take_in(reinterpret_cast<uintptr_t>(launch.call.op));
    take_in(reinterpret_cast<uintptr_t>(launch.call.scratch));
    take_in(reinterpret_cast<uintptr_t>(launch.call.place));
    take_in(launch.call.overwrite ? 1 : 0);
    for (const auto* views : {&kept.in, &kept.out, &kept.updates}) {
      take_in(views->size());
      for (const TensorView& view : *views) {
        take_in(reinterpret_cast<uintptr_t>(view.data));
        take_in(static_cast<uint64_t>(view.dtype) << 16 | static_cast<uint64_t>(view.layout) << 8 |
                static_cast<uint64_t>(view.rank));
        for (const int64_t dim : view.dims) take_in(static_cast<uint64_t>(dim));
        take_in(static_cast<uint64_t>(view.stretches));
        take_in(static_cast<uint64_t>(view.step_bytes));
      }
    }
  }

  bool empty() const { return kept_.empty(); }
  size_t size() const { return kept_.size(); }
  const Key& key() const { return key_; }

  /// Calls every entry on `stream`, in order.
  void enqueue(void* stream) {
    for (reached_ = 0; reached_ < kept_.size(); ++reached_) {
      Kept& kept = kept_[reached_];
      KernelCall& call = kept.launch.call;
      call.in = kept.in;
      call.out = kept.out;
      call.updates = kept.updates;
      call.stream = stream;
      kept.launch.run(call);
    }
  }
  /// The entry that threw, where one did: enqueue came no further.
  const Launch& at() const { return kept_[std::min(reached_, kept_.size() - 1)].launch; }
  void clear() {
    kept_.clear();
    key_ = kStart;
  }

 private:
  static constexpr Key kStart{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
  struct Kept {
    Launch launch;
    std::vector<TensorView> in, out, updates;
  };
  /// Two mixes of 64 bits with different constants (the finalizers of SplitMix64 and of MurmurHash3).
  void take_in(uint64_t word) {
    key_[0] = finalised((key_[0] + 0x9e3779b97f4a7c15) ^ word);
    key_[1] = finalised((key_[1] * 5 + 0x52dce729) ^ word, 33, 0xff51afd7ed558ccd, 33, 0xc4ceb9fe1a85ec53, 33);
  }

  std::vector<Kept> kept_;
  size_t reached_ = 0;
  Key key_ = kStart;
};

}  // namespace heddle::device
