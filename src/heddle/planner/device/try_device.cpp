#include "heddle/planner/device/try_device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/comm/device_world.h"
#include "heddle/device/device_facts.h"
#include "heddle/ops/ops.h"

namespace heddle::planner {

namespace {

using device::TensorView;

constexpr int64_t kArenaBytes = int64_t{1} << 30;  // more than the trials and their scratch take

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

double number_at(const TensorView& view, const std::byte* bytes, int64_t i) {
  if (view.dtype == Dtype::f32) return reinterpret_cast<const float*>(bytes)[i];
  return static_cast<float>(reinterpret_cast<const bf16*>(bytes)[i]);
}

/// One text of ops, run on a device and by the reference's loops.
class TrialText {
 public:
  /// A value of normal numbers.
  ir::ValueId input(const char* name, Dtype dtype, std::initializer_list<int64_t> dims, ir::Role role) {
    const ir::ValueId id = add(name, dtype, dims, role);
    const RandomKey key = RandomKey(71).with(name);
    std::vector<std::byte> bytes(static_cast<size_t>(listing_.bytes(id, ir::FixedRows(0))));
    for (int64_t i = 0; i < std::ssize(bytes) / size_of(dtype); ++i) {
      const auto number = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
      if (dtype == Dtype::f32) {
        reinterpret_cast<float*>(bytes.data())[i] = number;
      } else {
        reinterpret_cast<bf16*>(bytes.data())[i] = bf16(number);
      }
    }
    inputs_[id] = std::move(bytes);
    return id;
  }
  ir::ValueId integers(const char* name, const std::vector<int32_t>& values) {
    const ir::ValueId id = add(name, Dtype::i32, {std::ssize(values)}, ir::Role::metadata);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    inputs_[id].assign(bytes, bytes + values.size() * sizeof(int32_t));
    return id;
  }
  std::vector<ir::ValueId> op(const char* kind, std::vector<ir::ValueId> in, ir::Attributes attributes = {}) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.attributes = std::move(attributes);
    std::vector<std::string> names;
    for (size_t i = 0; i < ir::names_in(op.def->results).size(); ++i)
      names.push_back(fmt::format("{}.{}", kind, i));
    return listing_.append(std::move(op), names);
  }

  /// Runs all ops on the device, `rounds` times, and once by the reference. Returns the ops that ran, by name. A
  /// difference from the reference of more than bf16's rounding is an error.
  std::string run(const backends::Backend& backend, device::Device& device, int rounds = 1) {
    const auto arena = device.arena(kArenaBytes);
    const auto stream = device.stream("compute", 1);
    std::map<ir::ValueId, int64_t> at;
    int64_t end = 0;
    for (size_t id = 0; id < listing_.values.size(); ++id) {
      at[static_cast<ir::ValueId>(id)] = end;
      end += aligned(listing_.bytes(static_cast<ir::ValueId>(id), ir::FixedRows(0)));
    }
    const int64_t scratch_at = end;
    std::string ran;
    std::vector<const kernels::KernelEntry*> chosen;
    for (const ir::Op& op : listing_.ops) {
      chosen.push_back(&backend.select_kernel(listing_, op));
      const auto scratch = chosen.back()->scratch_bytes;
      if (scratch != nullptr) end = std::max(end, scratch_at + aligned(scratch(listing_, op, ir::FixedRows(0))));
      const std::string name(chosen.back()->name);
      if (ran.find(name) == std::string::npos) ran += (ran.empty() ? "" : ", ") + name;
    }
    arena->reach(std::max<int64_t>(end, 1));
    for (const auto& [id, bytes] : inputs_) device.upload(arena->base() + at[id], bytes.data(), std::ssize(bytes));
    for (int round = 0; round < rounds; ++round) {
      for (const ir::Op& op : listing_.ops) {  // an earlier round's values prove nothing
        for (const ir::ValueId id : op.out) {
          const std::vector<std::byte> poison(static_cast<size_t>(listing_.bytes(id, ir::FixedRows(0))),
                                              std::byte{0xff});
          device.upload(arena->base() + at[id], poison.data(), std::ssize(poison));
        }
      }
      for (size_t i = 0; i < listing_.ops.size(); ++i) {
        Views views(listing_, listing_.ops[i], [&](ir::ValueId id) { return arena->base() + at[id]; });
        device::Launch launch;
        launch.run = chosen[i]->run;
        launch.call = views.call(listing_.ops[i], arena->base() + scratch_at);
        stream->launch(launch);
      }
      stream->synchronize();
    }
    compare(device, *arena, at);
    return ran;
  }

 private:
  ir::ValueId add(const char* name, Dtype dtype, std::initializer_list<int64_t> dims, ir::Role role) {
    ir::Value value;
    value.name = name;
    value.dtype = dtype;
    for (const int64_t dim : dims) value.shape.push_back({dim, ir::none});
    value.role = role;
    return listing_.add_value(std::move(value));
  }

  struct Views {
    template <class At>
    Views(const ir::Listing& listing, const ir::Op& op, const At& at) {
      const auto view = [&](ir::ValueId id) {
        TensorView v;
        if (id == ir::none) return v;
        const ir::Value& value = listing.value(id);
        v.data = at(id);
        v.dtype = value.dtype;
        v.rank = static_cast<int8_t>(value.shape.size());
        for (size_t i = 0; i < value.shape.size(); ++i) v.dims[i] = value.shape[i].count;
        return v;
      };
      for (const ir::ValueId id : op.in) in.push_back(view(id));
      for (const ir::ValueId id : op.out) out.push_back(view(id));
    }
    device::KernelCall call(const ir::Op& op, std::byte* scratch) const {
      device::KernelCall call;
      call.op = &op;
      call.in = in;
      call.out = out;
      call.scratch = scratch;
      return call;
    }
    std::vector<TensorView> in, out;
  };

  void compare(device::Device& device, device::Arena& arena, const std::map<ir::ValueId, int64_t>& at) {
    std::map<ir::ValueId, std::vector<std::byte>> made = inputs_;
    const auto bytes_of = [&](ir::ValueId id) { return static_cast<size_t>(listing_.bytes(id, ir::FixedRows(0))); };
    for (const ir::Op& op : listing_.ops) {
      for (const ir::ValueId id : op.out) made[id].resize(bytes_of(id));
      const kernels::KernelEntry* plain = nullptr;
      for (const kernels::KernelEntry& kernel : kernels::reference_kernels()) {
        if (kernel.op_kind == op.kind()) plain = &kernel;
      }
      HEDDLE_CHECK(plain != nullptr, "no reference of '{}'", op.kind());
      std::vector<std::byte> scratch(
          plain->scratch_bytes ? static_cast<size_t>(plain->scratch_bytes(listing_, op, ir::FixedRows(0))) : 0);
      const Views views(listing_, op, [&](ir::ValueId id) { return made[id].data(); });
      plain->run(views.call(op, scratch.data()));
      for (size_t i = 0; i < op.out.size(); ++i) {
        const TensorView& view = views.out[i];
        if (view.dtype != Dtype::f32 && view.dtype != Dtype::bf16) continue;
        std::vector<std::byte> found(bytes_of(op.out[i]));
        device.download(found.data(), arena.base() + at.at(op.out[i]), std::ssize(found));
        double off = 0, all = 0;
        for (int64_t n = 0; n < view.elements(); ++n) {
          const double a = number_at(view, found.data(), n), b = number_at(view, made[op.out[i]].data(), n);
          off += (a - b) * (a - b);
          all += b * b;
        }
        // A rounding of bf16 is 2⁻⁹ of a number, and there are some between operands and results.
        if (!(std::sqrt(off) <= 0x1p-6 * std::sqrt(all) + 1e-30))
          throw SystemError(0, fmt::format("{}: result {} is off by {:.1e} of its size", op.kind(), i,
                                           std::sqrt(off / std::max(all, 1e-300))));
      }
    }
  }

  ir::Listing listing_;
  std::map<ir::ValueId, std::vector<std::byte>> inputs_;
};

std::string a_launch(const backends::Backend& backend, device::Device& device) {
  TrialText text;
  const auto a = text.input("a", Dtype::f32, {512, 512}, ir::Role::activation),
             b = text.input("b", Dtype::f32, {512, 512}, ir::Role::activation);
  text.op("add", {a, b});
  return "kernel " + text.run(backend, device);
}

std::string a_product(const backends::Backend& backend, device::Device& device) {
  TrialText text;
  const auto x = text.input("x", Dtype::bf16, {256, 128}, ir::Role::activation),
             w = text.input("w", Dtype::bf16, {192, 128}, ir::Role::weight);
  text.op("linear", {x, w});
  const std::string ran = text.run(backend, device);
  const kernels::VendorLibrary library = kernels::cuda_product_library();
  return fmt::format("kernel {}, {}", ran, library.text);
}

std::string experts(const backends::Backend& backend, device::Device& device) {
  TrialText text;
  constexpr int64_t kExperts = 3, kIn = 128, kOut = 192;
  const std::vector<int32_t> first{0, 150, 150, 200};
  const auto x = text.input("x", Dtype::bf16, {first.back(), kIn}, ir::Role::activation),
             dy = text.input("dy", Dtype::bf16, {first.back(), kOut}, ir::Role::gradient),
             w = text.input("w", Dtype::bf16, {kExperts, kOut, kIn}, ir::Role::weight);
  const auto offsets = text.integers("offsets", first);
  text.op("grouped_linear", {x, w, offsets});
  text.op("grouped_linear_dgrad", {dy, w, offsets});
  const std::string ran = text.run(backend, device);
  return fmt::format("kernel {}, {}", ran, kernels::cuda_expert_kernels());
}

std::string attention(const backends::Backend& backend, device::Device& device) {
  TrialText text;
  constexpr int64_t kRows = 128, kHeads = 2, kWidth = 64;
  const ir::Attributes sizes{{"heads", kHeads},     {"kv_heads", kHeads}, {"head_dim", kWidth},
                             {"value_dim", kWidth}, {"sequence", kRows},  {"causal", int64_t{1}},
                             {"scale", 0.125}};
  const auto in = [&](const char* name) {
    return text.input(name, Dtype::bf16, {kRows, kHeads * kWidth}, ir::Role::activation);
  };
  const auto q = in("q"), k = in("k"), v = in("v"), d_o = in("do");
  const std::vector<ir::ValueId> out = text.op("attention", {q, k, v}, sizes);
  text.op("attention_dgrad", {d_o, q, k, v, out[0], out[1]}, sizes);
  const std::string ran = text.run(backend, device);
  return fmt::format("kernel {}, {}", ran, kernels::cuda_attention_library().text);
}

/// Long enough to be kept, and met often enough to be launched as a graph.
std::string a_graph(const backends::Backend& backend, device::Device& device) {
  TrialText text;
  ir::ValueId a = text.input("a", Dtype::f32, {64, 64}, ir::Role::activation);
  const ir::ValueId b = text.input("b", Dtype::f32, {64, 64}, ir::Role::activation);
  for (int i = 0; i < 8; ++i) a = text.op("add", {a, b})[0];
  device.set_graphs(true);
  text.run(backend, device, 4);
  device.set_graphs(false);
  return "a run of 8 launches, put on the stream 4 times";
}

std::string a_byte() {
  const Support there = comm::device_world_available();
  if (!there && device::cuda_device_count() < 2) return "one device: none is needed; " + there.reason;
  return comm::send_to_itself();
}

std::string copy_of_peers(const backends::Backend& backend) {
  if (device::cuda_device_count() < 2) return "one device: nothing to copy between";
  if (std::getenv("HEDDLE_DEVICE") != nullptr) return "HEDDLE_DEVICE names one device: nothing to copy between";
  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<std::unique_ptr<device::Device>> both;
  std::vector<std::unique_ptr<device::Arena>> arenas;
  for (int i = 0; i < 2; ++i) both.push_back(backend.open({.on_host = i, .ranks = 2}));
  for (const auto& one : both) {
    arenas.push_back(one->arena(kBytes));
    arenas.back()->reach(kBytes);
  }
  std::vector<std::byte> sent(kBytes), came(kBytes);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  both[0]->upload(arenas[0]->base(), sent.data(), kBytes);
  const double gb_per_s = device::copy_between(arenas[1]->base(), 1, arenas[0]->base(), 0, kBytes) * 1e-9;
  both[1]->download(came.data(), arenas[1]->base(), kBytes);
  if (came != sent) throw SystemError(0, "other bytes come than were sent");
  return fmt::format("{:.0f} GB/s from device 0 to device 1", gb_per_s);
}

}  // namespace

std::vector<Trial> try_device(std::string_view name) {
  std::vector<Trial> all;
  const backends::Backend& backend = backends::named(name);
  std::unique_ptr<device::Device> device;
  const auto attempt = [&](const char* what, const char* remedy, const std::function<std::string()>& body) {
    const double began_s = now_s();
    try {
      const std::string found = body();
      all.push_back({true, what, fmt::format("{} ({:.0f} ms)", found, (now_s() - began_s) * 1e3), ""});
    } catch (const std::exception& error) {
      all.push_back({false, what, error.what(), remedy});
    }
    return all.back().good;
  };
  const auto on_device = [&](const char* what, const char* remedy, auto body) {
    attempt(what, remedy, [&] { return body(backend, *device); });
  };
  const bool open = attempt("a context", "see the facts above", [&] {
    device = backend.open({});
    return std::string("opened");
  });
  if (!open) return all;
  on_device("a launch", "the build's architectures (HEDDLE_CUDA_ARCHITECTURES) and the driver must fit the device",
            a_launch);
  on_device("a product", "HEDDLE_CUBLASLT=0 multiplies without the library; HEDDLE_CUBLASLT_PATH names another",
            a_product);
  on_device("products of experts", "HEDDLE_WGMMA=0, HEDDLE_CUTLASS=0 and HEDDLE_WGMMA_FP8=0 use the own kernels",
            experts);
  on_device("attention and gradient", "HEDDLE_CUDNN=0 attends without the library; HEDDLE_CUDNN_PATH names another",
            attention);
  on_device("a graph", "leave device.graphs off", a_graph);
  attempt("a byte by NCCL", "NCCL_DEBUG=INFO shows more; one rank needs no NCCL", [] { return a_byte(); });
  attempt("a copy between devices", "leave device.copy_engine off", [&] { return copy_of_peers(backend); });
  return all;
}

}  // namespace heddle::planner
