#include "heddle/session/traced/run_trace.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "heddle/runtime/executor.h"
#include "heddle/train/step/moment.h"

namespace heddle::session {

namespace {

constexpr int kMostTracedRanks = 64;

observe::SpanPhase phase_of(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::F: return observe::SpanPhase::F;
    case ir::Phase::I: return observe::SpanPhase::I;
    case ir::Phase::W: return observe::SpanPhase::W;
    case ir::Phase::begin:
    case ir::Phase::end: return observe::SpanPhase::end;
  }
  return observe::SpanPhase::other;
}

// Each stream has its name, the number of its spans, and their bytes: all ranks run one program.
static_assert(std::is_trivially_copyable_v<device::Span>);

std::string packed(const RankSpans& rank) {
  std::string bytes;
  for (size_t i = 0; i < rank.streams.size(); ++i) {
    const std::vector<device::Span>& spans = rank.of_stream[i];
    bytes += fmt::format("{}\n{}\n", rank.streams[i], spans.size());
    bytes.append(reinterpret_cast<const char*>(spans.data()), spans.size() * sizeof(device::Span));
  }
  return bytes;
}

RankSpans unpacked_spans(const std::string& bytes) {
  RankSpans rank;
  for (size_t at = 0; at < bytes.size();) {
    const size_t name_end = bytes.find('\n', at), count_end = bytes.find('\n', name_end + 1);
    rank.streams.push_back(bytes.substr(at, name_end - at));
    std::vector<device::Span>& spans =
        rank.of_stream.emplace_back(std::stoull(bytes.substr(name_end + 1, count_end - name_end - 1)));
    at = count_end + 1 + spans.size() * sizeof(device::Span);
    HEDDLE_CHECK(at <= bytes.size(), "a trace of {} bytes, {} are missing", bytes.size(), at - bytes.size());
    std::memcpy(spans.data(), bytes.data() + count_end + 1, spans.size() * sizeof(device::Span));
  }
  return rank;
}

}  // namespace

bool is_traced(const config::RunConfig::Train& train, int64_t first_step, int64_t step) {
  if (train.trace_step <= 0) return false;
  const int64_t wanted = first_step + train.trace_step;
  return step == wanted || (step == train.steps && step < wanted);
}

std::vector<RankSpans> take_spans(train::Trainer& trainer, int64_t began_ns) {
  RankSpans own;
  own.streams = trainer.executor().walk().streams().names();
  for (size_t i = 0; i < own.streams.size(); ++i) {
    std::vector<device::Span>& spans =
        own.of_stream.emplace_back(trainer.executor().stream(static_cast<int>(i)).take_spans());
    for (device::Span& span : spans) {
      span.start_ns -= began_ns;
      span.end_ns -= began_ns;
    }
  }
  train::RankExchange& ranks = trainer.ranks();
  if (ranks.size() == 1) return {std::move(own)};
  std::vector<RankSpans> all;
  for (const std::string& bytes : ranks.share(ranks.rank() < kMostTracedRanks ? packed(own) : "")) {
    if (!bytes.empty()) all.push_back(unpacked_spans(bytes));
  }
  return all;
}

std::vector<RankSpans> spans_of(const simulate::Simulation& simulation) {
  std::vector<RankSpans> ranks;
  const size_t traced = std::min<size_t>(simulation.kind_of.size(), kMostTracedRanks);
  for (size_t r = 0; r < traced; ++r) {
    const simulate::RankResult& from = simulation.of(static_cast<int>(r));
    RankSpans& rank = ranks.emplace_back();
    for (const simulate::StreamUse& stream : from.streams) rank.streams.push_back(stream.name);
    rank.of_stream.resize(rank.streams.size());
    for (const simulate::SimulatedOp& op : from.ops) {
      if (!op.ran) continue;
      rank.of_stream[static_cast<size_t>(op.stream)].push_back(
          {op.listing, op.op, op.microbatch, static_cast<int64_t>(op.start_us * 1e3),
           static_cast<int64_t>(op.end_us * 1e3), op.live_bytes, op.reserved_bytes});
    }
  }
  return ranks;
}

StepTrace trace_of(const plan::Lowered& lowered, const std::vector<RankSpans>& ranks, int64_t step) {
  const ir::StepProgram& program = lowered.program;
  StepTrace trace;
  trace.step = step;
  observe::Timeline& timeline = trace.timeline;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<int>(r);
    for (size_t i = 0; i < ranks[r].streams.size(); ++i) {
      const uint32_t track = timeline.track(rank, ranks[r].streams[i]);
      for (const device::Span& from : ranks[r].of_stream[i]) {
        const ir::Op& op = program.listings[static_cast<size_t>(from.listing)].ops[from.op_index];
        observe::Span& span = timeline.spans.emplace_back();
        const std::string name = op.layer >= 0 ? fmt::format("{} {}", op.layer, op.kind()) : std::string(op.kind());
        span.name = timeline.intern(name);
        span.kind = timeline.intern(op.kind());
        span.track = track;
        span.start_us = static_cast<double>(from.start_ns) / 1e3;
        span.end_us = static_cast<double>(from.end_ns) / 1e3;
        span.phase = phase_of(op.phase);
        span.stage = train::stage_of(lowered, from.listing, op.chunk);
        span.microbatch = from.microbatch;
        span.layer = op.layer;
        span.step = static_cast<int32_t>(step);
        timeline.arena.push_back({rank, span.start_us, from.live_bytes, from.reserved_bytes});
      }
    }
  }
  auto& arena = timeline.arena;
  std::stable_sort(arena.begin(), arena.end(), [](const auto& a, const auto& b) { return a.at_us < b.at_us; });
  return trace;
}

}  // namespace heddle::session
