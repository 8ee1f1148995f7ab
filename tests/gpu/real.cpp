// On a device: operands go there before a kernel and come back after it, with guards around each.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "heddle/device/device.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/kernel_runner.h"

namespace heddle::op_runner {

namespace {

struct Machine {
  std::unique_ptr<device::Device> device = device::cuda_device({});
  std::unique_ptr<device::Stream> stream = device->stream("compute", 1);
  std::unique_ptr<device::Arena> arena = device->arena(int64_t{1} << 30);
};
Machine& machine() {
  static Machine one;
  return one;
}

constexpr int64_t kGuard = 256;

void run_on_device(const kernels::KernelEntry& kernel, const device::KernelCall& call, int64_t scratch_bytes) {
  Machine& m = machine();
  int64_t at = kGuard;
  struct Place {
    device::TensorView on_host, there;
    int64_t bytes;
    bool written;
  };
  std::vector<Place> places;
  const auto place = [&](std::span<const device::TensorView> views, bool written,
                         std::vector<device::TensorView>& moved) {
    for (const device::TensorView& view : views) {
      device::TensorView there = view;
      if (view) {
        // An operand that stands twice among the operands lies in one place.
        const auto known =
            std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.on_host.data == view.data; });
        const int64_t bytes = view.elements() * size_of(view.dtype);
        if (known != places.end()) {
          there.data = known->there.data;
          known->written = known->written || written;
        } else {
          there.data = m.arena->base() + at;
          at += (bytes + 255) / 256 * 256 + kGuard;
          places.push_back({view, there, bytes, written});
        }
      }
      moved.push_back(there);
    }
  };
  std::vector<device::TensorView> in, out, updates;
  place(call.in, false, in);
  place(call.out, true, out);
  place(call.updates, true, updates);
  const int64_t scratch_at = at, end = at + scratch_bytes + kGuard;
  m.arena->reach(end);
  const std::vector<std::byte> poison(static_cast<size_t>(end), std::byte{0xff});
  m.device->upload(m.arena->base(), poison.data(), end);
  for (const Place& p : places) m.device->upload(p.there.data, p.on_host.data, p.bytes);

  device::Launch launch;
  launch.run = kernel.run;
  launch.call = call;
  launch.call.in = in;
  launch.call.out = out;
  launch.call.updates = updates;
  launch.call.scratch = m.arena->base() + scratch_at;
  m.stream->launch(launch);
  m.stream->synchronize();

  std::vector<std::byte> all(static_cast<size_t>(end));
  m.device->download(all.data(), m.arena->base(), end);
  std::vector<bool> mine(static_cast<size_t>(end), false);
  for (const Place& p : places) {
    const int64_t first = static_cast<std::byte*>(p.there.data) - m.arena->base();
    std::fill_n(mine.begin() + first, p.bytes, true);
    if (p.written) std::copy_n(all.begin() + first, p.bytes, static_cast<std::byte*>(p.on_host.data));
  }
  std::fill_n(mine.begin() + scratch_at, scratch_bytes, true);
  for (size_t i = 0; i < all.size(); ++i) {
    HEDDLE_CHECK(mine[i] || all[i] == std::byte{0xff}, "{}.{} wrote outside its operands", kernel.backend,
                 kernel.name);
  }
}

/// An arena of its own.
class ArenaRoom : public Room {
 public:
  explicit ArenaRoom(int64_t bytes) : arena_(machine().device->arena(bytes)) { arena_->reach(bytes); }
  std::byte* at() const override { return arena_->base(); }
  void put(int64_t offset, const void* from, int64_t bytes) override {
    machine().device->upload(at() + offset, from, bytes);
  }
  void get(void* to, int64_t offset, int64_t bytes) const override {
    machine().device->download(to, at() + offset, bytes);
  }

 private:
  std::unique_ptr<device::Arena> arena_;
};

}  // namespace

std::unique_ptr<Room> room(int64_t bytes) { return std::make_unique<ArenaRoom>(bytes); }

Support room_for(int64_t bytes) {
  const int64_t there = machine().device->memory_bytes();
  if (bytes <= there) return Support::yes();
  return Support::no(fmt::format("{} bytes wanted, the device has {} left", bytes, there));
}

void run_in_rooms(const kernels::KernelEntry& kernel, const device::KernelCall& call) {
  device::Launch launch;
  launch.run = kernel.run;
  launch.call = call;
  machine().stream->launch(launch);
  machine().stream->synchronize();
}

Support device_there() {
  if (const Support there = device::cuda_available(); !there) return there;
  run_kernel = [](const kernels::KernelEntry& kernel, const device::KernelCall& call, int64_t scratch_bytes) {
    if (kernel.backend != "cuda") return kernel.run(call);
    run_on_device(kernel, call, scratch_bytes);
  };
  return Support::yes();
}

}  // namespace heddle::op_runner
