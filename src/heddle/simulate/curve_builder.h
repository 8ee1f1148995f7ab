// Draws the memories of a rank over a step as its ops come, in bounded memory. A step of very many ops is drawn at
// some places, each of which holds the most of its stretch. Peaks, with what they hold, and the most of each kind
// are exact.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "heddle/simulate/memory_log.h"

namespace heddle::simulate {

class CurveBuilder {
 public:
  /// The program must outlive it. `places`: of each curve, at most. `events`: that are kept at one time.
  CurveBuilder(const ir::StepProgram& program, int rank, size_t places = 1 << 17, size_t events = 1 << 18);

  /// A value takes so many bytes, or gives them back (below 0); `id`: none for what a kernel works in.
  void changes(int listing, ir::ValueId id, int microbatch, int64_t bytes);
  /// An op begins; all that it needs has its place. Times don't decrease.
  void begins(int listing, uint32_t op, int microbatch, double at_us);

  /// As of a walk that skips (ir::Walk::Watcher). What comes again comes `each_us` after the time before.
  void began_cycle();
  void repeated(int64_t times, int microbatches, double each_us);

  /// Curves of the memories that hold anything. It is empty afterwards.
  std::vector<MemoryCurve> curves(double until_us);

 private:
  struct Event {
    int32_t listing = 0;
    ir::ValueId id = ir::none;
    int32_t microbatch = 0;
    int64_t bytes = 0;
  };
  using Held = std::map<std::tuple<int32_t, ir::ValueId, int32_t>, int64_t>;
  struct Place {
    double at_us = 0;
    BytesOfKinds bytes{};
    int64_t sum = 0;
  };
  struct Drawn {
    BytesOfKinds now{}, most{};
    int64_t persistent_bytes = 0, live_bytes = 0;
    std::vector<Place> places;
    size_t cycle = 0;   // the first place of the cycle
    size_t ops = 0;     // of the last place
    size_t stride = 1;  // ops a place
    MemoryPeak peak{.bytes = -1};
    int32_t peak_listing = 0;
    size_t peak_events = 0;  // of those that are kept, before the peak
    bool peak_is_kept = false;
    Held at_peak;  // where it is not
  };
  ir::Space space_of(int listing, ir::ValueId id) const;
  MemoryKind kind_of(int listing, ir::ValueId id) const;
  void draw(Drawn& drawn, double at_us);
  void halve(Drawn& drawn) const;
  void apply(Held& held, size_t events) const;
  void fold_events();
  void finish_peak(Drawn& drawn, ir::Space space) const;

  const ir::StepProgram& program_;
  size_t most_places_, most_events_;
  std::vector<std::vector<MemoryKind>> kinds_;  // [listing][value]
  std::array<Drawn, ir::kSpaces> drawn_;        // [space]
  Held held_;                                   // before the events that are kept
  std::vector<Event> events_;
};

}  // namespace heddle::simulate
