#include "heddle/runtime/executor.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/failure.h"
#include "heddle/base/hash.h"
#include "heddle/comm/collectives.h"
#include "heddle/device/by_stretches.h"
#include "heddle/device/value_view.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"
#include "heddle/runtime/dry_run.h"

namespace heddle::runtime {

namespace {
using device::TensorView;

// The rows that each output of an op with a host stall can count at most: all that are there.
std::vector<int64_t> most_rows(const ir::Listing& listing, const ir::Op& op) {
  const ir::Op& counted = shared_counts_of(listing, op);
  const double ranks = static_cast<double>(counted.attributes.integer("ranks"));
  // Even rows are fewer by those that experts without computation have.
  const double more = 1 + static_cast<double>(counted.attributes.integer_or("without", 0)) /
                              static_cast<double>(counted.attributes.integer("experts"));
  std::vector<int64_t> most;
  for (size_t i = 0; i < op.out.size(); ++i) most.push_back(balanced_rows_of(listing, counted, i, ranks * more));
  return most;
}

std::unique_ptr<device::Arena> arena_of_size(device::Device& device, const ExecutorOptions& options) {
  const int64_t predicted = options.capacity_bytes > 0 ? options.capacity_bytes : device.memory_bytes();
  return device.arena(std::max(predicted, options.limit_bytes), predicted);
}
// The digest of the layout of the memory that outlives the process. Its contents are of use only to a program that
// has the same values in the same places.
uint64_t digest_of_shared(const ir::StepProgram& program, const ir::Walk& walk, int rank) {
  std::string text;
  for (const int s : program.listings_of(rank)) {
    const ir::Listing& listing = program.listings[s];
    for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
      const ir::Value& value = listing.value(id);
      if (value.space == ir::Space::shared && value.part_of == ir::none)
        text += fmt::format("{} {} at {}\n", value.name, ir::text_of(listing, value), walk.offset_of(s, id));
    }
  }
  return hash_bytes(text);
}

// Rows of experts that an op works on: of the operand that has most.
int64_t rows_of(const ir::Listing& listing, const std::vector<ir::ValueId>& ids,
                std::span<const TensorView> views) {
  int64_t most = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    if (ids[i] != ir::none && !listing.value(ids[i]).shape.empty() && !listing.value(ids[i]).shape[0].is_static())
      most = std::max(most, views[i].dim(0));
  }
  return most;
}

}  // namespace

// An op as known before it runs: its kernel, and its views but for the addresses.
struct Executor::Prepared {
  device::Kernel run = nullptr;
  device::Kernel of_stretch = nullptr;  // the kernel that `run` runs, where operands lie in stretches
  const kernels::KernelEntry* entry = nullptr;
  std::unique_ptr<backends::InnerProduct> product;  // the product that it runs on some rows at a time, if it does
  int64_t (*scratch)(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) = nullptr;
  comm::Communicator* communicator = nullptr;
  std::vector<TensorView> in, out, updates;
  std::vector<int64_t> most_rows;  // for an op with a host stall: the most that each output can count
  bool dynamic = false;            // some operand has run-time rows
  bool counted = false;            // their number is known to the stream when it runs the op, and not before
  int64_t scratch_bytes = 0;       // when not dynamic
  int64_t product_scratch_at = 0;
};

TensorView Executor::view_of(const ir::Listing& listing, ir::ValueId id, int64_t offset,
                             const ir::RowCounts& rows) const {
  if (id == ir::none) return {};
  const ir::Value& value = listing.value(id);
  return device::view_of(value, offset < 0 ? nullptr : arena_of(value.space) + offset, rows);
}

Executor::Executor(const ir::StepProgram& program, ExecutorOptions options)
    : program_(program),
      options_(std::move(options)),
      backend_(backends::named(options_.backend)),
      own_device_(options_.device != nullptr ? nullptr : backend_.open({})),
      device_(options_.device != nullptr ? options_.device : own_device_.get()),
      arenas_{arena_of_size(*device_, options_)},
      walk_(program, options_.rank,
            options_.capacity_bytes > 0 ? options_.capacity_bytes : arenas_[0]->capacity_bytes(),
            options_.host_capacity_bytes > 0 ? options_.host_capacity_bytes : device_->host_memory_bytes(),
            options_.limit_bytes > 0 ? arenas_[0]->capacity_bytes() : 0),
      inputs_(program, options_.rank) {
  if (walk_.uses(ir::Space::host)) arenas_[1] = device_->host_arena(walk_.storage(ir::Space::host).limit());
  if (walk_.uses(ir::Space::shared)) {
    HEDDLE_CHECK(!options_.shared_file.empty(), "no file for the memory that outlives the process");
    auto shared = device_->shared_arena(options_.shared_file, walk_.storage(ir::Space::shared).reserved_bytes(),
                                        digest_of_shared(program, walk_, options_.rank));
    found_shared_ = shared->found();
    arenas_[2] = std::move(shared);
  }
  reach();
  for (size_t i = 0; i < 2; ++i) {
    if (options_.poison && arenas_[i] != nullptr) arenas_[i]->poison();
  }
  prepared_.resize(program.listings.size());
  const ir::FixedRows no_rows;
  for (const int s : program.listings_of(options_.rank)) {
    const ir::Listing& listing = program.listings[s];
    const device::CountedRows counted(listing);
    for (uint32_t i = 0; i < listing.ops.size(); ++i) {
      const ir::Op& op = listing.ops[i];
      Prepared p;
      if (const comm::Collective* collective = backend_.find_collective(op.kind())) {
        p.run = collective->run;
        p.scratch = collective->scratch_bytes;
        p.product = backend_.inner_product(listing, op);
      } else if (ir::runs(*op.def)) {
        p.entry = &backend_.select_kernel(listing, op);
        p.run = p.entry->run;
        p.scratch = p.entry->scratch_bytes;
      }
      if (ir::communicates(*op.def)) {
        const auto at = options_.communicators.find(ir::channel_name(op));
        HEDDLE_CHECK(at != options_.communicators.end() && at->second != nullptr,
                     "no communicator for '{}' of group '{}'", op.kind(), op.group);
        p.communicator = at->second;
      }
      if (op.def->host_stall) p.most_rows = most_rows(listing, op);
      const auto views = [&](const std::vector<ir::ValueId>& ids, std::vector<TensorView>& into) {
        for (const ir::ValueId id : ids) {
          into.push_back(view_of(listing, id, -1, no_rows));
          if (id == ir::none) continue;
          for (const ir::Dim& dim : listing.value(id).shape) p.dynamic = p.dynamic || !dim.is_static();
        }
      };
      p.counted = counted.concerns(op);
      views(op.in, p.in);
      views(op.out, p.out);
      views(op.updates, p.updates);
      if (p.entry != nullptr && device::in_stretches(p.in, p.out)) {
        p.of_stretch = std::exchange(p.run, device::run_by_stretches);
      }
      if (!p.dynamic && p.scratch != nullptr) p.scratch_bytes = p.scratch(listing, op, no_rows);
      if (p.product) {
        HEDDLE_CHECK(!p.dynamic, "'{}' of rows that are counted at run time", op.kind());
        p.product_scratch_at = backends::scratch_of_product(p.scratch_bytes);
        p.scratch_bytes = backends::scratch_with_product(*p.product, listing, no_rows, p.scratch_bytes);
      }
      HEDDLE_CHECK(!ir::runs_on_host(op) || p.scratch == nullptr, "'{}' needs scratch, which lies on the device",
                   ir::text_of(listing, op));
      prepared_[s].push_back(std::move(p));
    }
  }
  const std::vector<std::string>& names = walk_.streams().names();
  for (size_t i = 0; i < names.size(); ++i) {
    const bool computes = i == ir::StreamTable::compute || names[i] == ir::kHostStream;
    streams_.push_back(device_->stream(names[i], computes ? options_.threads : 1));
    streams_.back()->on_failure(
        [this](const std::exception_ptr& failure, const device::Span& at) { note_failure(failure, at); });
  }
}

Executor::~Executor() = default;

void Executor::reach() {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (arenas_[i]) arenas_[i]->reach(walk_.storage(static_cast<ir::Space>(i)).reserved_bytes());
  }
}

const kernels::KernelEntry* Executor::kernel(int listing, uint32_t op) const {
  return prepared_[listing][op].entry;
}

device::Kernel Executor::replace(int listing, uint32_t op, device::Kernel kernel) {
  return std::exchange(prepared_.at(static_cast<size_t>(listing)).at(op).run, kernel);
}

TensorView Executor::view(int listing, ir::ValueId id) const {
  TensorView view = view_of(program_.listings.at(static_cast<size_t>(listing)), id, walk_.offset_of(listing, id),
                            ir::FixedRows());
  const ir::Space space = program_.listings[listing].value(id).space;
  if (device_->shares_memory() || space != ir::Space::device || !view) return view;
  const int64_t bytes = view.elements() * size_of(view.dtype);
  std::vector<std::byte>& copy = handed_out_[view.as<std::byte>()];
  if (copy.empty()) {
    copy.resize(static_cast<size_t>(bytes));
    device_->download(copy.data(), view.data, bytes);
  }
  HEDDLE_CHECK(std::ssize(copy) >= bytes, "'{}' of {} bytes lies where {} bytes were read",
               program_.listings[listing].value(id).name, bytes, copy.size());
  view.data = copy.data();
  return view;
}

std::vector<TensorView> Executor::fetch(std::span<const TensorView> views,
                                        std::vector<std::vector<std::byte>>& kept) const {
  std::vector<TensorView> fetched(views.begin(), views.end());
  for (TensorView& view : fetched) {
    if (!view || view.layout == ir::Layout::packed) continue;
    kept.emplace_back(static_cast<size_t>(view.elements() * size_of(view.dtype)));
    const int64_t bytes = std::ssize(kept.back()) / view.stretches;
    for (int64_t i = 0; i < view.stretches; ++i)
      device_->download(kept.back().data() + i * bytes, view.stretch(i).data, bytes);
    view.data = kept.back().data();
    view.stretches = 1;
  }
  return fetched;
}

void Executor::write_back() {
  for (const auto& [at, copy] : handed_out_) device_->upload(at, copy.data(), std::ssize(copy));
  handed_out_.clear();
}

void Executor::set_trace(bool on) {
  for (auto& stream : streams_) stream->set_trace(on);
}

device::StreamTimes Executor::take_compute_times() { return streams_[ir::StreamTable::compute]->take_times(); }

void Executor::watch(std::function<void(const device::Launch&)> look) {
  if (look && !device_->shares_memory())
    config_error("the host can't read what ops of device.backend \"{}\" have written", backend_.name);
  watch_ = std::move(look);
}

int64_t Executor::scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) {
  const Prepared& p = prepared_[listing][op];
  if (!p.dynamic || p.scratch == nullptr) return p.scratch_bytes;
  const ir::Listing& text = program_.listings[listing];
  return p.scratch(text, text.ops[op], rows);
}

void Executor::issue(const ir::Issue& issue) {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  Prepared& p = prepared_[issue.listing][issue.op_index];
  const ir::Listing& text = program_.listings[issue.listing];
  const auto bind = [&](std::span<const ir::Operand> operands, std::vector<TensorView>& views) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (p.dynamic) {
        views[i] = view_of(text, operands[i].id, operands[i].offset, *issue.rows);
      } else {
        const int64_t offset = operands[i].offset;
        views[i].data = offset < 0 ? nullptr : arena_of(text.value(operands[i].id).space) + offset;
      }
    }
  };
  bind(issue.in, p.in);
  bind(issue.out, p.out);
  bind(issue.updates, p.updates);

  reach();
  device::Stream& stream = *streams_[issue.stream];
  for (const ir::Wait& wait : issue.waits) stream.wait(*streams_[wait.stream], wait.count);
  device::Launch launch;
  launch.run = p.run;
  if (watch_) launch.look = &watch_;
  if (p.counted && backend_.row_work()->in_place) {
    launch.counted = &counted_.try_emplace({issue.listing, issue.microbatch}, text).first->second;
  }
  // Rows that a device counts for itself are of one number to the host.
  if (p.dynamic && (!p.counted || launch.counted != nullptr)) {
    const ir::Op& op = *issue.op;
    launch.rows =
        std::max({rows_of(text, op.in, p.in), rows_of(text, op.out, p.out), rows_of(text, op.updates, p.updates)});
  }
  launch.listing = issue.listing;
  launch.op_index = issue.op_index;
  launch.live_bytes = issue.live_bytes;
  launch.reserved_bytes = issue.reserved_bytes;
  device::KernelCall& call = launch.call;
  call.op = issue.op;
  call.of_stretch = p.of_stretch;
  if (p.product) call.product = {p.product->kernel->run, &p.product->op, p.product_scratch_at};
  call.in = p.in;
  call.out = p.out;
  call.updates = p.updates;
  call.overwrite = issue.overwrite;
  call.microbatch = issue.microbatch;
  call.scratch = issue.scratch_bytes > 0 ? arenas_[0]->base() + issue.scratch_offset : nullptr;
  if (issue.op->def->loads) call.input = inputs_.of(issue.listing, *issue.op, issue.microbatch);
  call.communicator = p.communicator;
  call.place = &options_.place;
  call.row_work = backend_.row_work();
  call.host_copies = device_->shares_memory() ? nullptr : &host_copies_;
  if (p.communicator != nullptr) p.communicator->run_on(stream.handle());
  if (change_) change_(launch);
  stream.launch(launch);
  ++enqueued_ops_;
  if (look_ != nullptr) {
    stream.synchronize(issue.count);
    if (launch.counted != nullptr) {
      std::vector<TensorView> all;
      for (const auto* views : {&p.in, &p.out, &p.updates}) all.insert(all.end(), views->begin(), views->end());
      launch.counted->fit(*issue.op, all);
      auto from = all.begin();
      for (auto* views : {&p.in, &p.out, &p.updates}) {
        std::copy_n(from, views->size(), views->begin());
        from += std::ssize(*views);
      }
    }
    std::vector<std::vector<std::byte>> kept;
    std::vector<TensorView> in, out, updates;
    if (!device_->shares_memory()) {
      call.in = in = fetch(p.in, kept);
      call.out = out = fetch(p.out, kept);
      call.updates = updates = fetch(p.updates, kept);
    }
    (*look_)(issue, call);
  }
}

int64_t Executor::read_rows(const ir::Issue& issue, size_t output) {
  const int64_t start = now_ns();
  host_stalls_ += output == 0 ? 1 : 0;
  streams_[issue.stream]->synchronize(issue.count);
  stalled_ns_ += now_ns() - start;
  const ir::Listing& text = program_.listings[issue.listing];
  if (!device_->shares_memory()) {  // counts of the op, for the ops that say where rows go
    for (const ir::Operand& out : issue.out) {
      const TensorView view = view_of(text, out.id, out.offset, *issue.rows);
      std::vector<std::byte>& copy = host_copies_.of(view.data);
      copy.resize(static_cast<size_t>(view.elements() * size_of(view.dtype)));
      device_->download(copy.data(), view.data, std::ssize(copy));
    }
  }
  const ir::Operand& counts = issue.out[output];
  device::KernelCall call;
  call.op = issue.op;
  call.host_copies = device_->shares_memory() ? nullptr : &host_copies_;
  const int64_t rows = comm::counted_rows(
      output, device::HostCopies::on_host(call, view_of(text, counts.id, counts.offset, *issue.rows)));
  const int64_t most = prepared_[issue.listing][issue.op_index].most_rows[output];
  HEDDLE_CHECK(rows >= 0 && rows <= most, "'{}' counts {} rows, of at most {}", text.value(counts.id).name, rows,
               most);
  return rows;
}

std::string Executor::stood_at() const {
  std::optional<device::Span> first;  // once one has failed, the others are ended
  for (const auto& stream : streams_) {
    const std::optional<device::Span> failed = stream->failed_at();
    if (failed && (!first || failed->start_ns < first->start_ns)) first = failed;
  }
  return first ? ir::text_around(program_, options_.rank, first->listing, first->op_index, first->microbatch) : "";
}

void Executor::note_failure(const std::exception_ptr& failure, const device::Span& at) {
  const ir::Op& op = program_.listings[static_cast<size_t>(at.listing)].ops[at.op_index];
  const std::string where =
      fmt::format("{}{}{}, phase {}, microbatch {}",
                  program_.class_of_rank.size() > 1 ? fmt::format("rank {}, ", options_.rank) : "", op.kind(),
                  op.layer >= 0 ? fmt::format(" in layer {}", op.layer) : "", ir::name_of(op.phase), at.microbatch);
  {
    const std::lock_guard lock(failure_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = with_place(failure, where);
    failed_.store(true, std::memory_order_release);
  }
  stop_peers(failure_);
}

void Executor::stop_peers(const std::exception_ptr& failure) {
  std::string reason;
  try {
    std::rethrow_exception(failure);
  } catch (const PeerError& error) {
    reason = error.reason;
  } catch (...) {
    reason = text_of(failure);
  }
  for (const auto& [name, communicator] : options_.communicators) communicator->abort(reason);
}

void Executor::make_weights() {
  write_back();
  run_step(device::Inputs(), ir::Purpose::restore);
}

void Executor::run_step(const device::Inputs& inputs, ir::Purpose purpose) {
  start_step(inputs, purpose);
  guarded([&] {
    for (auto& stream : streams_) stream->synchronize();
  });
}

bool Executor::has_ended(const ir::Marks& marks) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (marks[i] > 0 && !streams_[i]->has_ended(marks[i])) return false;
  }
  return true;
}

void Executor::start_step(const device::Inputs& inputs, ir::Purpose purpose) {
  handed_out_.clear();
  enqueued_ops_ = 0;
  stalled_ns_ = 0;
  host_stalls_ = 0;
  for (auto& stream : streams_) stream->take_host_waited_ns();
  const int64_t start = now_ns();
  guarded([&] {
    if (!program_.actions_of(options_.rank, purpose).empty())
      inputs_.begin(program_.listing_of(options_.rank, purpose), inputs);
    walk_.run_step(*this, purpose, inputs.microbatches());
    enqueue_ns_ = now_ns() - start - stalled_ns_;
    for (auto& stream : streams_) enqueue_ns_ -= stream->take_host_waited_ns();
  });
}

// A failure stops the peers and all streams, and the first cause is thrown.
void Executor::guarded(const std::function<void()>& run) {
  try {
    run();
  } catch (...) {
    const std::exception_ptr own = std::current_exception();
    std::exception_ptr first;  // the first is the one to tell
    {
      const std::lock_guard lock(failure_mutex_);
      first = failure_ ? failure_ : own;
    }
    stop_peers(first);
    for (auto& stream : streams_) {
      try {
        stream->synchronize();
      } catch (...) {
      }
    }
    std::rethrow_exception(first);
  }
}

void Executor::run_step(const device::Inputs& inputs,
                        const std::function<void(const ir::Issue&, const device::KernelCall&)>& look) {
  look_ = &look;
  try {
    run_step(inputs);
  } catch (...) {
    look_ = nullptr;
    throw;
  }
  look_ = nullptr;
}

}  // namespace heddle::runtime
