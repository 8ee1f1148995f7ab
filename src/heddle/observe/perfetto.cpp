#include "heddle/observe/perfetto.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <protozero/pbf_writer.hpp>

#include "heddle/base/error.h"

namespace heddle::observe {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr uint32_t kSequence = 1;

namespace trace {
constexpr uint32_t packet = 1;
}
namespace trace_packet {
constexpr uint32_t timestamp = 8, trusted_packet_sequence_id = 10, track_event = 11, interned_data = 12,
                   sequence_flags = 13, track_descriptor = 60;
constexpr uint32_t incremental_state_cleared = 1, needs_incremental_state = 2;
}  // namespace trace_packet
namespace track_descriptor {
constexpr uint32_t uuid = 1, name = 2, process = 3, thread = 4, parent_uuid = 5, counter = 8;
}
namespace process_descriptor {
constexpr uint32_t pid = 1, process_name = 6;
}
namespace thread_descriptor {
constexpr uint32_t pid = 1, tid = 2, thread_name = 5;
}
namespace counter_descriptor {
constexpr uint32_t unit = 3;
constexpr int32_t size_bytes = 3;
}  // namespace counter_descriptor
namespace track_event {
constexpr uint32_t category_iids = 3, debug_annotations = 4, type = 9, name_iid = 10, track_uuid = 11,
                   counter_value = 30;
constexpr int32_t slice_begin = 1, slice_end = 2, counter = 4;
}  // namespace track_event
namespace debug_annotation {
constexpr uint32_t name_iid = 1, int_value = 4, string_value = 6;
}
namespace interned_data {
constexpr uint32_t event_categories = 1, event_names = 2, debug_annotation_names = 3;
constexpr uint32_t iid = 1, name = 2;
}  // namespace interned_data

// Interned once, in the first packet: iid = position + 1.
constexpr std::array<std::string_view, 5> kAnnotations = {"step", "stage", "microbatch", "layer", "kind"};
enum Annotation : uint64_t { kStep = 1, kStage, kMicrobatch, kLayer, kKind };

uint64_t nanoseconds(double at_us) { return at_us <= 0 ? 0 : static_cast<uint64_t>(std::llround(at_us * 1000)); }

void add_interned(protozero::pbf_writer& data, uint32_t field, uint64_t iid, std::string_view name) {
  protozero::pbf_writer entry(data, field);
  entry.add_uint64(interned_data::iid, iid);
  entry.add_string(interned_data::name, name.data(), name.size());
}

void annotate(protozero::pbf_writer& event, Annotation what, int64_t value) {
  if (value < 0) return;
  protozero::pbf_writer annotation(event, track_event::debug_annotations);
  annotation.add_uint64(debug_annotation::name_iid, what);
  annotation.add_int64(debug_annotation::int_value, value);
}

// A process needs a positive pid that is no thread's; ranks begin at zero.
int32_t process_id(int32_t rank) { return rank + 1; }

}  // namespace

PerfettoTrace::PerfettoTrace(const std::string& path) : file_(path, OutputFile::Open::begin) {
  buffer_.reserve(kBufferBytes + 4096);
  std::string body;
  protozero::pbf_writer first(body);
  first.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
  first.add_uint32(trace_packet::sequence_flags, trace_packet::incremental_state_cleared);
  {
    protozero::pbf_writer data(first, trace_packet::interned_data);
    for (int phase = 0; phase < kSpanPhases; ++phase) {
      add_interned(data, interned_data::event_categories, phase + 1, span_phase_name(SpanPhase(phase)));
    }
    for (size_t i = 0; i < kAnnotations.size(); ++i) {
      add_interned(data, interned_data::debug_annotation_names, i + 1, kAnnotations[i]);
    }
  }
  packet(body);
}

PerfettoTrace::~PerfettoTrace() {
  try {
    close();
  } catch (const SystemError&) {
  }
}

void PerfettoTrace::declare_rank(int32_t rank) {
  if (rank_uuids_.contains(rank)) return;
  const uint64_t process = next_uuid_;
  next_uuid_ += 3;
  rank_uuids_.emplace(rank, process);
  std::string body;
  {
    protozero::pbf_writer packet(body);
    packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
    protozero::pbf_writer track(packet, trace_packet::track_descriptor);
    track.add_uint64(track_descriptor::uuid, process);
    protozero::pbf_writer descriptor(track, track_descriptor::process);
    descriptor.add_int32(process_descriptor::pid, process_id(rank));
    descriptor.add_string(process_descriptor::process_name, fmt::format("rank {}", rank));
  }
  packet(body);
  const std::array<std::string_view, 2> counters = {"arena live", "arena reserved"};
  for (size_t i = 0; i < counters.size(); ++i) {
    body.clear();
    {
      protozero::pbf_writer packet(body);
      packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
      protozero::pbf_writer track(packet, trace_packet::track_descriptor);
      track.add_uint64(track_descriptor::uuid, process + 1 + i);
      track.add_uint64(track_descriptor::parent_uuid, process);
      track.add_string(track_descriptor::name, counters[i].data(), counters[i].size());
      protozero::pbf_writer descriptor(track, track_descriptor::counter);
      descriptor.add_enum(counter_descriptor::unit, counter_descriptor::size_bytes);
    }
    packet(body);
  }
}

void PerfettoTrace::declare_stream(int32_t rank, const std::string& stream) {
  const auto [where, is_new] = stream_uuids_.try_emplace({rank, stream}, next_uuid_);
  if (!is_new) return;
  const uint64_t uuid = next_uuid_++;
  std::string body;
  {
    protozero::pbf_writer packet(body);
    packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
    protozero::pbf_writer track(packet, trace_packet::track_descriptor);
    track.add_uint64(track_descriptor::uuid, uuid);
    track.add_uint64(track_descriptor::parent_uuid, rank_uuids_.at(rank));
    protozero::pbf_writer descriptor(track, track_descriptor::thread);
    descriptor.add_int32(thread_descriptor::pid, process_id(rank));
    // Thread numbers are global to a trace; far above the process numbers, so that no thread seems a main thread.
    descriptor.add_int32(thread_descriptor::tid, static_cast<int32_t>(1'000'000 + uuid));
    descriptor.add_string(thread_descriptor::thread_name, stream);
  }
  packet(body);
}

PerfettoTrace::Name PerfettoTrace::event_name(std::string_view name) {
  const auto [where, is_new] = name_iids_.try_emplace(std::string(name), name_iids_.size() + 1);
  return {where->second, is_new};
}

void PerfettoTrace::begin(const Timeline& timeline, const Span& span, uint64_t uuid, double at_us) {
  const std::string& name = timeline.name(span.name);
  const Name interned = event_name(name);
  std::string body;
  {
    protozero::pbf_writer packet(body);
    packet.add_uint64(trace_packet::timestamp, nanoseconds(at_us));
    packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
    packet.add_uint32(trace_packet::sequence_flags, trace_packet::needs_incremental_state);
    if (interned.is_new) {
      protozero::pbf_writer data(packet, trace_packet::interned_data);
      add_interned(data, interned_data::event_names, interned.iid, name);
    }
    protozero::pbf_writer event(packet, trace_packet::track_event);
    event.add_uint64(track_event::category_iids, static_cast<uint64_t>(span.phase) + 1);
    event.add_enum(track_event::type, track_event::slice_begin);
    event.add_uint64(track_event::name_iid, interned.iid);
    event.add_uint64(track_event::track_uuid, uuid);
    annotate(event, kStep, span.step);
    annotate(event, kStage, span.stage);
    annotate(event, kMicrobatch, span.microbatch);
    annotate(event, kLayer, span.layer);
    protozero::pbf_writer annotation(event, track_event::debug_annotations);
    annotation.add_uint64(debug_annotation::name_iid, kKind);
    annotation.add_string(debug_annotation::string_value, timeline.name(span.kind));
  }
  packet(body);
}

void PerfettoTrace::end(uint64_t uuid, double at_us) {
  std::string body;
  {
    protozero::pbf_writer packet(body);
    packet.add_uint64(trace_packet::timestamp, nanoseconds(at_us));
    packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
    protozero::pbf_writer event(packet, trace_packet::track_event);
    event.add_enum(track_event::type, track_event::slice_end);
    event.add_uint64(track_event::track_uuid, uuid);
  }
  packet(body);
}

void PerfettoTrace::counter(uint64_t uuid, double at_us, int64_t value) {
  std::string body;
  {
    protozero::pbf_writer packet(body);
    packet.add_uint64(trace_packet::timestamp, nanoseconds(at_us));
    packet.add_uint32(trace_packet::trusted_packet_sequence_id, kSequence);
    protozero::pbf_writer event(packet, trace_packet::track_event);
    event.add_enum(track_event::type, track_event::counter);
    event.add_uint64(track_event::track_uuid, uuid);
    event.add_int64(track_event::counter_value, value);
  }
  packet(body);
}

void PerfettoTrace::add(const Timeline& timeline, double offset_us) {
  timeline.check();
  HEDDLE_CHECK(std::isfinite(offset_us), "offset of {} us", offset_us);
  std::vector<std::vector<const Span*>> of_track(timeline.tracks.size());
  for (const Span& span : timeline.spans) of_track[span.track].push_back(&span);
  for (size_t t = 0; t < timeline.tracks.size(); ++t) {
    const Track& track = timeline.tracks[t];
    declare_rank(track.rank);
    declare_stream(track.rank, track.stream);
    const uint64_t uuid = stream_uuids_.at({track.rank, track.stream});
    // Among spans that start together the longer one is the outer one.
    std::stable_sort(of_track[t].begin(), of_track[t].end(), [](const Span* a, const Span* b) {
      return a->start_us != b->start_us ? a->start_us < b->start_us : a->end_us > b->end_us;
    });
    std::vector<double> open_ends_us;  // ends of the slices begun and not yet ended, outermost first
    for (const Span* span : of_track[t]) {
      while (!open_ends_us.empty() && open_ends_us.back() <= span->start_us) {
        end(uuid, open_ends_us.back() + offset_us);
        open_ends_us.pop_back();
      }
      begin(timeline, *span, uuid, span->start_us + offset_us);
      open_ends_us.push_back(open_ends_us.empty() ? span->end_us : std::min(span->end_us, open_ends_us.back()));
    }
    for (; !open_ends_us.empty(); open_ends_us.pop_back()) end(uuid, open_ends_us.back() + offset_us);
  }
  for (const ArenaSample& sample : timeline.arena) {
    declare_rank(sample.rank);
    const uint64_t process = rank_uuids_.at(sample.rank);
    counter(process + 1, sample.at_us + offset_us, sample.live_bytes);
    counter(process + 2, sample.at_us + offset_us, sample.reserved_bytes);
  }
}

void PerfettoTrace::packet(const std::string& body) {
  protozero::pbf_writer out(buffer_);
  out.add_message(trace::packet, body);
  if (buffer_.size() >= kBufferBytes) flush();
}

void PerfettoTrace::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

void PerfettoTrace::close() {
  if (!buffer_.empty()) flush();
  file_.close();
}

}  // namespace heddle::observe
