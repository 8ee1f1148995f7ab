#include "heddle/observe/timeline.h"

#include <cmath>

#include "heddle/base/error.h"

namespace heddle::observe {

std::string_view span_phase_name(SpanPhase phase) {
  switch (phase) {
    case SpanPhase::F: return "F";
    case SpanPhase::I: return "I";
    case SpanPhase::W: return "W";
    case SpanPhase::end: return "end";
    case SpanPhase::other: return "other";
    case SpanPhase::both: return "IW";
  }
  internal_error("no span phase {}", static_cast<int>(phase));
}

uint32_t Timeline::intern(std::string_view name) {
  if (const auto found = number_of_.find(name); found != number_of_.end()) return found->second;
  const auto number = static_cast<uint32_t>(names_.size());
  number_of_.emplace(names_.emplace_back(name), number);
  return number;
}

uint32_t Timeline::track(int32_t rank, std::string_view stream) {
  for (size_t i = 0; i < tracks.size(); ++i) {
    if (tracks[i].rank == rank && tracks[i].stream == stream) return static_cast<uint32_t>(i);
  }
  tracks.push_back({rank, std::string(stream)});
  return static_cast<uint32_t>(tracks.size() - 1);
}

void Timeline::check() const {
  for (const Span& span : spans) {
    HEDDLE_CHECK(span.name < names_.size() && span.kind < names_.size(),
                 "span with name {} and kind {} of {} names", span.name, span.kind, names_.size());
    HEDDLE_CHECK(span.track < tracks.size(), "span on track {} of {}", span.track, tracks.size());
    HEDDLE_CHECK(std::isfinite(span.start_us) && std::isfinite(span.end_us) && span.start_us <= span.end_us,
                 "span '{}' from {} to {} us", names_[span.name], span.start_us, span.end_us);
  }
  for (const ArenaSample& sample : arena) {
    HEDDLE_CHECK(std::isfinite(sample.at_us), "arena sample at {} us", sample.at_us);
  }
}

Timeline& Timeline::operator=(const Timeline& other) {
  if (this == &other) return *this;
  tracks = other.tracks;
  spans = other.spans;
  arena = other.arena;
  names_ = other.names_;
  number_of_.clear();  // its keys look into names_, so they can't be copied
  for (size_t i = 0; i < names_.size(); ++i) number_of_.emplace(names_[i], static_cast<uint32_t>(i));
  return *this;
}

}  // namespace heddle::observe
