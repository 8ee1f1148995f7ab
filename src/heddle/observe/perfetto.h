// Writes timelines as a Perfetto trace: open the file at ui.perfetto.dev.
//
// The file is a `perfetto.protos.Trace` message: a row of TracePackets. Each rank is a process, each of its streams
// a thread of it. Each op is a slice with its phase as category and stage, microbatch, layer, kind and step as
// arguments. Each rank's arena gives two counters. Names are interned within the packet sequence. Memory is
// bounded: packets are gathered in a buffer of about a megabyte and written out when it is full. Source: the schema
// in perfetto's protos/perfetto/trace (trace_packet, track_event, track_descriptor, interned_data); the field
// numbers used are named in perfetto.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "heddle/base/files/output_file.h"
#include "heddle/observe/timeline.h"

namespace heddle::observe {

class PerfettoTrace {
 public:
  /// Starts the file anew. Throws SystemError.
  explicit PerfettoTrace(const std::string& path);
  ~PerfettoTrace();

  /// Appends what the timeline holds, its times moved by `offset_us` (so that steps recorded each from zero follow
  /// one another). Slices of one track nest or follow one another; one that would cross the end of the slice
  /// around it is cut there. Throws SystemError, or InternalError on a broken timeline.
  void add(const Timeline& timeline, double offset_us = 0);

  /// Writes what is buffered.
  void flush();

  /// Flushes and closes; the destructor does the same but swallows errors.
  void close();

 private:
  struct Name {
    uint64_t iid;
    bool is_new;
  };
  void declare_rank(int32_t rank);
  void declare_stream(int32_t rank, const std::string& stream);
  Name event_name(std::string_view name);
  void begin(const Timeline& timeline, const Span& span, uint64_t uuid, double at_us);
  void end(uint64_t uuid, double at_us);
  void counter(uint64_t uuid, double at_us, int64_t value);
  void packet(const std::string& body);

  OutputFile file_;
  std::string buffer_;
  std::unordered_map<std::string, uint64_t> name_iids_;
  std::map<int32_t, uint64_t> rank_uuids_;  // the rank's process; its counters are the next two
  std::map<std::pair<int32_t, std::string>, uint64_t> stream_uuids_;
  uint64_t next_uuid_ = 1;
};

}  // namespace heddle::observe
