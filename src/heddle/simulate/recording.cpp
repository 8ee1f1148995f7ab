#include "heddle/simulate/recording.h"

#include <map>
#include <optional>

#include "heddle/simulate/caching_allocator.h"

namespace heddle::simulate {

namespace {

class Recorder : public ir::Issuer {
 public:
  Recorder(int rank, const RecordOptions& options) : rank_(rank), options_(options) {}

  Recording recording;

  // All ops of a step have ended before the next begins: only waits on ops of the same step are left.
  void begin_step() {
    before_ = issued_;
    recording.ops.clear();
    recording.waits.clear();
  }

  int64_t scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) override {
    return options_.scratch_bytes ? options_.scratch_bytes(listing, op, rows) : 0;
  }

  void issue(const ir::Issue& issue) override {
    const auto stream = static_cast<size_t>(issue.stream);
    issued_[stream] = issue.count;
    RecordedOp op;
    op.listing = issue.listing;
    op.op = issue.op_index;
    op.microbatch = issue.microbatch;
    op.stream = issue.stream;
    op.count = static_cast<uint32_t>(issue.count - before_[stream]);
    op.first_wait = static_cast<uint32_t>(recording.waits.size());
    for (const ir::Wait& wait : issue.waits) {
      const uint64_t before = before_[wait.stream];
      if (wait.count > before) recording.waits.push_back({wait.stream, wait.count - before});
    }
    op.waits = static_cast<uint32_t>(recording.waits.size()) - op.first_wait;
    op.host_stall = issue.op->def->host_stall;
    op.overwrite = issue.overwrite;
    op.duration_us = options_.duration_us ? options_.duration_us(rank_, issue) : 0;
    HEDDLE_CHECK(op.duration_us >= 0, "op '{}' lasts {} us", issue.op->kind(), op.duration_us);
    op.threads = options_.threads ? options_.threads(rank_, issue) : 0;
    op.takes = options_.takes ? options_.takes(rank_, issue) : 0;
    if (options_.link_use) op.link = options_.link_use(rank_, issue);
    op.live_bytes = issue.live_bytes;
    op.reserved_bytes = issue.reserved_bytes;
    recording.ops.push_back(op);
  }

  int64_t read_rows(const ir::Issue& issue, size_t output) override {
    return options_.rows ? options_.rows(rank_, issue, output) : 0;
  }

 private:
  int rank_;
  const RecordOptions& options_;
  ir::Marks issued_{}, before_{};
};

// Hands the lifetimes of a walk to a caching allocator.
class Lifetimes : public ir::Storage::Watcher {
 public:
  Lifetimes(const ir::StepProgram& program, int rank, ir::Walk& walk) : storage_(walk.storage()) {
    for (const int s : program.listings_of(rank)) {  // as the walk has placed them
      const ir::Listing& listing = program.listings[s];
      for (size_t v = 0; v < listing.values.size(); ++v) {
        const ir::Value& value = listing.values[v];
        const bool elsewhere =
            value.space != ir::Space::device || value.shared_with >= 0 || value.part_of != ir::none;
        if (!ir::is_persistent(value.role) || elsewhere) continue;
        allocator.allocate(listing.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()), ir::StreamTable::compute);
      }
    }
    storage_.watcher = this;
  }
  Lifetimes(const Lifetimes&) = delete;
  ~Lifetimes() override { storage_.watcher = nullptr; }

  void placed(int64_t offset, int64_t bytes, int stream) override {
    held_[offset] = {allocator.allocate(bytes, stream), stream};
  }
  void released(int64_t offset, const ir::Marks& used) override {
    const auto at = held_.find(offset);
    if (at == held_.end()) return;
    bool others = false;
    for (int i = 0; i < ir::kMostStreams; ++i) others = others || (i != at->second.second && used[i] > 0);
    allocator.free(at->second.first, others);
    held_.erase(at);
  }

  CachingAllocator allocator;

 private:
  ir::Storage& storage_;
  std::map<int64_t, std::pair<CachingAllocator::Id, int>> held_;  // by place: block, stream
};

}  // namespace

Recording record(const ir::StepProgram& program, int rank, const RecordOptions& options) {
  ir::Walk walk(program, rank, options.capacity_bytes, options.host_capacity_bytes, options.limit_bytes);
  Recorder recorder(rank, options);
  std::optional<Lifetimes> lifetimes;
  if (options.caching_allocator) lifetimes.emplace(program, rank, walk);
  for (int step = 0; step < options.steps; ++step) {
    recorder.begin_step();
    walk.keep_peak = options.keep_peak && step + 1 == options.steps;
    walk.watcher = step + 1 == options.steps ? options.watcher : nullptr;
    // A copy of the state runs beside the step that follows it, and counts with it.
    const bool snapshots =
        options.purpose == ir::Purpose::train && !program.actions_of(rank, ir::Purpose::snapshot).empty();
    if (snapshots) walk.run_step(recorder, ir::Purpose::snapshot);
    const int64_t snapshot_bytes = snapshots ? walk.copied_out_bytes() : 0;
    walk.run_step(recorder, options.purpose);
    recorder.recording.copied_out_bytes = snapshot_bytes + walk.copied_out_bytes();
    walk.peak_from_bytes = walk.storage().peak_live_bytes();  // a step's like the next
  }
  Recording& made = recorder.recording;
  made.streams = walk.streams().names();
  made.persistent_bytes = walk.persistent_bytes();
  made.peak_live_bytes = walk.storage().peak_live_bytes();
  made.reserved_bytes = walk.storage().reserved_bytes();
  made.live_at_peak = walk.live_at_peak();
  made.host_peak_live_bytes = walk.storage(ir::Space::host).peak_live_bytes();
  made.host_reserved_bytes = walk.storage(ir::Space::host).reserved_bytes();
  made.copied_in_bytes = walk.copied_in_bytes();
  if (lifetimes) made.caching_reserved_bytes = lifetimes->allocator.peak_reserved_bytes();
  return std::move(made);
}

}  // namespace heddle::simulate
