#include "heddle/planner/device/measure_device.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/crash_note.h"
#include "heddle/base/say.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/device_world.h"
#include "heddle/ops/ops.h"
#include "heddle/planner/measure_ops.h"

namespace heddle::planner {

namespace {

using ir::Space;

double us_of(const device::Span& span) { return static_cast<double>(span.end_ns - span.start_ns) * 1e-3; }

// The spans of all launches of a trace.
std::vector<device::Span> all_spans(device::Stream& stream, size_t launches) {
  std::vector<device::Span> spans = stream.take_spans();
  if (spans.size() != launches)
    throw Error(fmt::format("the trace of stream '{}' has {} of {} launches: nothing is measured without it",
                            stream.name(), spans.size(), launches));
  return spans;
}

// Copies by the ops that copy, between memories of the device and of the host.
class CopyProbe {
 public:
  CopyProbe(const backends::Backend& backend, device::Device& device, int64_t bytes)
      : backend_(backend),
        device_(device),
        bytes_(bytes),
        on_device_(device.arena(2 * bytes)),
        on_host_(device.host_arena(bytes)) {
    on_device_->reach(2 * bytes);
    on_host_->reach(bytes);
  }

  /// Microseconds of a copy of all bytes, alone: the median.
  double us(std::string_view kind) {
    constexpr int kRounds = 9;
    const Call call(*this, kind, bytes_);
    const auto stream = traced("compute");
    for (int i = 0; i <= kRounds; ++i) stream->launch(call.launch);
    stream->synchronize();
    std::vector<double> us;
    for (const device::Span& span : all_spans(*stream, kRounds + 1)) us.push_back(us_of(span));
    us.erase(us.begin());  // the first one touches the memory
    return std::max(1e-3, median(us));
  }

  /// The time from the end of an op to the start of one on another stream that waits for it. It is half of the gap
  /// between two ops of a stream, of which the second waits for another stream's op that waits for the first. One
  /// stream's clock tells.
  double wake_us() {
    constexpr int kRounds = 100;
    const Call call(*this, "copy", std::min<int64_t>(bytes_, 4096));
    const auto one = traced("compute"), two = traced("profile");
    for (uint64_t i = 1; i <= kRounds; ++i) {
      one->launch(call.launch);
      two->wait(*one, i);
      two->launch(call.launch);
      one->wait(*two, i);
    }
    one->synchronize();
    two->synchronize();
    const std::vector<device::Span> first = all_spans(*one, kRounds), second = all_spans(*two, kRounds);
    std::vector<double> us;
    for (size_t i = 0; i + 1 < first.size(); ++i) {
      const double between_us = static_cast<double>(first[i + 1].start_ns - first[i].end_ns) * 1e-3;
      us.push_back((between_us - us_of(second[i])) / 2);
    }
    return std::max(0.0, median(us));
  }

 private:
  struct Call {
    Call(const CopyProbe& probe, std::string_view kind, int64_t bytes) {
      op.def = &ops::find(kind);
      op.phase = ir::Phase::end;
      const auto value = [&](const char* name, bool on_host, std::byte* at) {
        ir::Value v;
        v.name = name;
        v.dtype = Dtype::f32;
        v.shape = {{bytes / 4, ir::none}};
        v.role = ir::Role::optimizer;
        v.space = on_host ? Space::host : Space::device;
        device::TensorView view{.data = at, .dtype = v.dtype, .rank = 1};
        view.dims[0] = bytes / 4;
        views.push_back(view);
        return listing.add_value(std::move(v));
      };
      std::byte* const host = probe.on_host_->base();
      std::byte* const device = probe.on_device_->base();
      const bool from_host = op.def->moves == ir::Moves::from_host, to_host = op.def->moves == ir::Moves::to_host;
      op.in = {value("x", from_host, from_host ? host : device)};
      op.updates = {value("y", to_host, to_host ? host : device + probe.bytes_)};
      launch.run = probe.backend_.select_kernel(listing, op).run;
      launch.call.op = &op;
      launch.call.in = std::span(views).first(1);
      launch.call.updates = std::span(views).last(1);
    }
    Call(const Call&) = delete;
    ir::Listing listing;
    ir::Op op;
    std::vector<device::TensorView> views;
    device::Launch launch;
  };

  std::unique_ptr<device::Stream> traced(const char* name) {
    auto stream = device_.stream(name, 1);
    stream->set_trace(true);
    return stream;
  }

  const backends::Backend& backend_;
  device::Device& device_;
  int64_t bytes_;
  std::unique_ptr<device::Arena> on_device_, on_host_;
};

double rate(double bytes, double us) { return bytes / us * 1e6; }

// Equal pieces to every other rank of the group.
void exchange_evenly(const device::KernelCall& call) {
  comm::Communicator& group = *call.communicator;
  const int64_t each = call.in[0].elements() / group.size();
  std::vector<comm::Piece> pieces;
  for (int i = 0; i < group.size(); ++i) {
    if (i != group.rank()) pieces.push_back({i, i * each, each});
  }
  group.run_on(call.stream);
  group.exchange(call.in[0].data, pieces, call.out[0].data, pieces);
}

// Groups of `size` neighbours, all at once. Times are a rank's own, from the op's start to its end, over all ranks.
void measure_group(comm::World& world, comm::World& devices, device::Device& device, cost::Link over, int size,
                   std::vector<cost::LinkTime>& found) {
  constexpr int64_t kMost = int64_t{64} << 20;
  const int first = world.rank() / size * size;
  std::vector<int> members;
  for (int r = first; r < first + size; ++r) members.push_back(r);
  const auto group = devices.communicator(members, fmt::format("profile.{}", size));
  const auto arena = device.arena(2 * kMost * size);
  arena->reach(2 * kMost * size);
  const auto stream = device.stream("comm.profile", 1);
  stream->set_trace(true);
  train::RankExchange ranks(&world);
  double spent_us = 0;
  for (int64_t each = 1024; each <= kMost && spent_us < 2e6; each *= 8) {
    constexpr int kRepeats = 8;
    device::TensorView in{.data = arena->base(), .dtype = Dtype::u8, .rank = 1}, out = in;
    out.data = arena->base() + kMost * size;
    in.dims[0] = out.dims[0] = each * size;
    device::Launch launch;
    launch.run = exchange_evenly;
    launch.call.in = std::span(&in, 1);
    launch.call.out = std::span(&out, 1);
    launch.call.communicator = group.get();
    for (int i = 0; i <= kRepeats; ++i) stream->launch(launch);
    stream->synchronize();
    const std::vector<device::Span> spans = all_spans(*stream, kRepeats + 1);
    std::vector<double> own_us;
    for (size_t i = 1; i < spans.size(); ++i) own_us.push_back(us_of(spans[i]));
    std::vector<double> times(static_cast<size_t>(world.size()), 0);
    times[world.rank()] = median(own_us);
    ranks.sum(times);  // a place for each: every rank goes on alike
    double sum_us = 0;
    for (const double us : times) {
      sum_us += us;
      spent_us += kRepeats * us / static_cast<double>(world.size());
    }
    found.push_back({over, size, static_cast<double>(each * (size - 1)), std::max(1e-3, sum_us / world.size())});
  }
}

}  // namespace

cost::MachineProfile measure_device(const MeasureOptions& options, const DeviceSizes& sizes) {
  const double began = now_s();
  const backends::Backend& backend = backends::named(options.backend);
  const OthersWatch others;
  cost::MachineProfile profile;
  name_machine(profile);
  profile.backend = backend.name;
  profile.machine = fmt::format("{} on {}", backend.name, profile.machine);
  profile.cores = 1;  // a rank has its device to itself
  profile.together = {1};
  const auto tell = [&](std::string_view what) {
    if (options.progress) options.progress(what, std::min(1.0, (now_s() - began) / options.seconds));
  };
  tell("copies");
  {
    const CrashNote note("copying between memories");
    const auto device = backend.open({});
    CopyProbe copies(backend, *device, sizes.copy_bytes);
    const auto bytes = static_cast<double>(sizes.copy_bytes);
    profile.copy_bytes_per_s = rate(2 * bytes, copies.us("copy"));  // read and written
    profile.host_copy_bytes_per_s = rate(2 * bytes, copies.us("copy_in") + copies.us("copy_out"));
    profile.wake_us = copies.wake_us();
  }
  std::vector<Dtype> dtypes{Dtype::f32};
  if (backend.usual_dtype() == Dtype::bf16) dtypes.push_back(Dtype::bf16);
  std::vector<double> between_us, enqueue_us;
  uint64_t number = 0;
  int failures = 0;  // since a program was measured
  const auto measured = [&](const train::TrainerOptions& program) {
    const std::string name = fmt::format("program {} in {}", program.seed, name_of(program.plan.dtype));
    const CrashNote note("measuring", name);
    StepMeasure found;
    try {
      found = measure_steps(program, 3);
      failures = 0;
    } catch (const std::exception& error) {
      constexpr int kMostFailures = 3;
      if (++failures == kMostFailures) throw;
      say(stderr, "warning: {} is left out: {}\n", name, error.what());
    }
    return found;
  };
  do {
    for (const Dtype dtype : dtypes) {
      tell("ops");
      train::TrainerOptions program = draw_program(number++, dtype, 1, sizes.most_flops, sizes.wide);
      program.backend = options.backend;
      program.memory_bytes = sizes.memory_bytes;
      StepMeasure found = measured(program);
      if (found.ops.empty()) continue;
      double& best = dtype == Dtype::bf16 ? profile.bf16_flops_per_s : profile.f32_flops_per_s;
      for (cost::OpTime& op : found.ops) {
        if (op.shape.kind == "linear" && op.shape.dtype == dtype)
          best = std::max(best, rate(op.shape.flops, op.us));
        profile.ops.add(std::move(op));
      }
      between_us.push_back(found.between_us);
      enqueue_us.push_back(found.enqueue_us);
    }
  } while (now_s() - began < options.seconds || failures > 0);
  profile.others_share = others.share();
  profile.launch_us = std::max(0.0, median(between_us));
  profile.enqueue_us = median(enqueue_us);
  return profile;
}

std::vector<cost::LinkTime> measure_device_links(comm::World& world, cost::Link over, std::string_view backend) {
  const auto device = backends::named(backend).open(comm::seat_in(world));
  if (const Support there = comm::device_world_available(); !there)
    config_error("messages between devices can't be measured: {}", there.reason);
  const auto devices = comm::device_world(world);
  std::vector<cost::LinkTime> found;
  for (int size = 2; size <= world.size();
       size = size < world.size() ? std::min(2 * size, world.size()) : size + 1) {
    if (world.size() % size == 0) measure_group(world, *devices, *device, over, size, found);
  }
  return found;
}

}  // namespace heddle::planner
