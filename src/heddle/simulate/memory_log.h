// Contents of each memory of a rank over a step, by kind. They are recorded from a walk, whether it hands its ops
// to an executor or to nobody, and read off afterwards as curves. So the pictures of a step that ran and of a
// predicted one come from one place, and both reach their walk's peak to the byte.
//
// A walk accounts in the order of the program, while streams run beside each other. A curve follows the compute
// stream: what is placed before one of its ops is drawn where that begins.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heddle/ir/walk/walk.h"
#include "heddle/simulate/memory_kind.h"

namespace heddle::simulate {

using BytesOfKinds = std::array<int64_t, kMemoryKinds>;

/// Moment at which a memory held most, and its contents; the first of several such moments.
struct MemoryPeak {
  double at_us = 0;
  int64_t bytes = 0;
  BytesOfKinds of_kinds{};
  std::string op;  // the op that begins then
  ir::Phase phase = ir::Phase::F;
  int layer = -1, microbatch = -1;
  struct InFlight {
    int microbatch = 0;
    int64_t bytes = 0;  // its activations
  };
  std::vector<InFlight> microbatches;
  std::vector<ir::Walk::Live> values;  // values that don't persist, the largest first; bytes as storage rounds them
};

struct MemoryCurve {
  ir::Space space = ir::Space::device;
  double until_us = 0;
  std::vector<double> at_us;  // not decreasing; each holds until the next
  std::vector<BytesOfKinds> bytes;
  BytesOfKinds most{};  // of each kind, at any moment
  MemoryPeak peak;
  int64_t persistent_bytes = 0;
};

class MemoryLog : public ir::Walk::Watcher {
 public:
  /// The program must outlive it.
  MemoryLog(const ir::StepProgram& program, int rank);

  /// Begins the log of the ops that follow: those of one step.
  void begin_step();
  void placed(int listing, ir::ValueId id, int microbatch, int64_t bytes) override;
  void released(int listing, ir::ValueId id, int microbatch, int64_t bytes) override;
  void issued(const ir::Issue& issue) override;

  struct Issued {
    int32_t listing = 0;
    uint32_t op = 0;
    int32_t microbatch = 0;
    int32_t stream = 0;
    uint32_t number = 0;  // its number in this step on its stream, from 0
    size_t events = 0;    // events before it
  };
  const std::vector<Issued>& ops() const { return ops_; }

  /// Curves of the memories that hold anything. `starts_us`: when an op of the compute stream began; `until_us`:
  /// the end.
  std::vector<MemoryCurve> curves(const std::function<double(const Issued&)>& starts_us, double until_us) const;

  static constexpr size_t kPeakValues = 16;

 private:
  struct Event {
    int32_t listing = 0;
    ir::ValueId id = ir::none;
    int32_t microbatch = 0;
    int64_t bytes = 0;  // below 0: given back
  };

  const ir::StepProgram& program_;
  int rank_;
  std::vector<Event> events_;
  std::vector<Issued> ops_;
  std::map<int32_t, uint32_t> issued_on_;  // ops of the step, by stream
};

/// Returns the curve at no more than so many places, each of which holds the most of its stretch; the peak stays.
MemoryCurve thinned(const MemoryCurve& curve, size_t places);

inline int64_t sum_of(const BytesOfKinds& kinds) {
  int64_t sum = 0;
  for (const int64_t bytes : kinds) sum += bytes;
  return sum;
}

}  // namespace heddle::simulate
