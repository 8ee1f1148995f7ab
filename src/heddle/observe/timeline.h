// Events of the steps of a run, as plain data: spans of time on the streams of ranks, and the arenas' bytes.
//
// The executor's trace, the simulator and the report all use it. Names are interned: a span holds numbers only, so
// that recording one costs no allocation once its name has been seen. Times are microseconds from the start of the
// timeline's first step; a span is half-open, [start_us, end_us).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heddle::observe {

/// The phase an op bears; `other` is for what belongs to no phase (a stall, a copy of metadata), `both` for a
/// backward that is not split.
enum class SpanPhase : uint8_t { F, I, W, end, other, both };
inline constexpr int kSpanPhases = 6;

std::string_view span_phase_name(SpanPhase phase);

/// Part of its lane that a span fills: two that run at once have a half each.
enum class SpanHalf : uint8_t { whole, upper, lower };

struct Span {
  uint32_t name = 0;   // index into Timeline::names(): what the slice is called, e.g. "moe.7 exchange"
  uint32_t kind = 0;   // index into Timeline::names(): the op kind, e.g. "exchange"
  uint32_t track = 0;  // index into Timeline::tracks
  double start_us = 0;
  double end_us = 0;
  SpanPhase phase = SpanPhase::other;
  int32_t stage = -1;  // -1: none; likewise below
  int32_t microbatch = -1;
  int32_t layer = -1;
  int32_t step = -1;
  SpanHalf half = SpanHalf::whole;
};

/// One stream of one rank.
struct Track {
  int32_t rank = 0;
  std::string stream;  // "compute", "comm.ep", "copy"
};

/// Bytes of a rank's arena from `at_us` on.
struct ArenaSample {
  int32_t rank = 0;
  double at_us = 0;
  int64_t live_bytes = 0;
  int64_t reserved_bytes = 0;
};

class Timeline {
 public:
  std::vector<Track> tracks;
  std::vector<Span> spans;  // any order
  std::vector<ArenaSample> arena;

  /// The number of this name, new or seen before.
  uint32_t intern(std::string_view name);
  const std::string& name(uint32_t number) const { return names_[number]; }
  size_t name_count() const { return names_.size(); }

  /// The track of this stream, new or seen before.
  uint32_t track(int32_t rank, std::string_view stream);

  /// Throws InternalError when a span names what does not exist, or has a time that is no number or ends before
  /// it begins.
  void check() const;

  Timeline() = default;
  Timeline(const Timeline& other) { *this = other; }
  Timeline& operator=(const Timeline& other);
  Timeline(Timeline&&) = default;
  Timeline& operator=(Timeline&&) = default;

 private:
  std::deque<std::string> names_;  // a deque, so that the keys of number_of_ stay where they are
  std::unordered_map<std::string_view, uint32_t> number_of_;
};

}  // namespace heddle::observe
