// Runs ops of a listing on the kernels of a backend, in hostile memory: outputs, fresh accumulators and scratch are
// poisoned with NaN bytes, and every buffer stands between guards that must survive.
//
// A test describes an op as an OpCase; `run_op` runs it alone, `run_with_gradient` also writes its gradient by the
// op's own rule and runs that. Contents are doubles on the outside, whatever the element type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/random.h"
#include "heddle/ir/gradient.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"
#include "tests/kernels/kernel_runner.h"

namespace heddle::op_runner {

using ir::Role;
using ir::ValueId;

/// A tensor outside of a listing. Values are rounded to `dtype` when they enter memory. The default one is absent.
struct Tensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<double> values;
  bool present = false;
  /// A packed weight is its raw bytes; `values` is empty then.
  ir::Layout layout = ir::Layout::rows;
  std::vector<std::byte> packed;

  Tensor() = default;
  Tensor(Dtype dtype, std::vector<int64_t> shape, double value = 0)
      : dtype(dtype), shape(std::move(shape)), present(true) {
    values.assign(static_cast<size_t>(elements()), value);
  }
  Tensor(Dtype dtype, std::vector<int64_t> shape, std::vector<double> values)
      : dtype(dtype), shape(std::move(shape)), values(std::move(values)), present(true) {
    HEDDLE_CHECK(std::ssize(this->values) == elements(), "{} values for {} elements", this->values.size(),
                 elements());
  }
  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t dim : shape) product *= dim;
    return product;
  }
};

/// Normal numbers that every floating type holds exactly, so that all types compute from the same operands.
inline Tensor random_tensor(Dtype dtype, std::vector<int64_t> shape, uint64_t seed, double deviation = 1) {
  Tensor t(dtype, std::move(shape));
  const RandomKey key(seed);
  for (size_t i = 0; i < t.values.size(); ++i) {
    t.values[i] = static_cast<float>(bf16(static_cast<float>(deviation * key.normal(i))));
  }
  return t;
}

inline Dtype wide(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
inline bool is_floating(Dtype dtype) { return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::bf16; }

struct Operand {
  Tensor tensor;
  Role role = Role::activation;
};

/// An op with its operands. Floating activations and weights are differentiated; metadata and inputs are not.
struct OpCase {
  std::string name;
  std::string kind;
  std::vector<Operand> in;
  ir::Attributes attributes;
  std::vector<Tensor> updates;  // contents before the op
  ir::Coordinates place{};      // of the rank in the mesh
};

/// Bytes between guards, poisoned.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), store_(bytes_ + 2 * kGuard + kAlign) {
    const auto address = reinterpret_cast<uintptr_t>(store_.data()) + kGuard;
    offset_ = (address + kAlign - 1) / kAlign * kAlign - address + kGuard;
    std::memset(store_.data(), kMark, store_.size());
    poison();
  }
  std::byte* data() { return store_.data() + offset_; }
  const std::byte* data() const { return store_.data() + offset_; }
  size_t size() const { return bytes_; }
  /// All ones: a NaN in every floating type, −1 in every integer type.
  void poison() { std::memset(data(), 0xff, bytes_); }
  bool guards_hold() const {
    const auto marked = [](std::byte b) { return b == std::byte{kMark}; };
    return std::all_of(store_.data(), data(), marked) &&
           std::all_of(data() + bytes_, store_.data() + store_.size(), marked);
  }

 private:
  static constexpr size_t kGuard = 64, kAlign = 64;
  static constexpr unsigned char kMark = 0xa5;
  size_t bytes_, offset_ = 0;
  std::vector<std::byte> store_;
};

/// A listing whose values have memory, run op by op.
class ListingRunner {
 public:
  explicit ListingRunner(const std::vector<kernels::KernelEntry>& kernels) : kernels_(&kernels) {}

  ir::Listing listing;
  std::vector<std::byte> input;  // that ops load
  ir::Coordinates place;
  /// The kernels that ran, as "op: backend.name", in order.
  std::vector<std::string> ran;

  ValueId add(const Tensor& tensor, Role role, const std::string& name) {
    if (!tensor.present) return ir::none;
    ir::Value value{.name = name, .dtype = tensor.dtype, .role = role, .layout = tensor.layout};
    for (const int64_t dim : tensor.shape) value.shape.push_back({dim, ir::none});
    if (tensor.layout == ir::Layout::packed) value.packed_bytes = std::ssize(tensor.packed);
    const ValueId id = listing.add_value(std::move(value));
    write(id, tensor);
    return id;
  }

  std::vector<ValueId> append(std::string_view kind, std::vector<ValueId> in, const ir::Attributes& attributes,
                              std::vector<ValueId> updates = {}, ir::Phase phase = ir::Phase::F,
                              std::vector<ValueId> mentions = {}) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.updates = std::move(updates);
    op.mentions = std::move(mentions);
    // A case may state what its op shares with the others of its family.
    for (const auto& [name, item] : attributes.items()) {
      if (ir::place_of(name, op.def->attributes) >= 0) op.attributes.set(name, item);
    }
    op.phase = phase;
    std::vector<std::string> names;
    for (size_t i = 0; i < op.def->infer(listing, op).size(); ++i)
      names.push_back(fmt::format("{}.out{}", kind, i));
    return listing.append(std::move(op), names);
  }

  /// Runs every op in order. Outputs are poisoned first, and accumulators too when `overwrite` is set.
  void run(bool overwrite = true) {
    ran.clear();
    for (const ir::Op& op : listing.ops) run(op, overwrite);
  }

  void write(ValueId id, const Tensor& tensor) {
    GuardedBuffer& buffer = memory(id);
    if (tensor.layout == ir::Layout::packed) {
      HEDDLE_CHECK(tensor.packed.size() == buffer.size(), "packed bytes differ from the buffer's");
      std::memcpy(buffer.data(), tensor.packed.data(), buffer.size());
      return;
    }
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const double v = tensor.values[i];
      switch (tensor.dtype) {
        case Dtype::f64: reinterpret_cast<double*>(buffer.data())[i] = v; break;
        case Dtype::f32: reinterpret_cast<float*>(buffer.data())[i] = static_cast<float>(v); break;
        case Dtype::bf16: reinterpret_cast<bf16*>(buffer.data())[i] = bf16(static_cast<float>(v)); break;
        case Dtype::i64: reinterpret_cast<int64_t*>(buffer.data())[i] = static_cast<int64_t>(v); break;
        case Dtype::i32: reinterpret_cast<int32_t*>(buffer.data())[i] = static_cast<int32_t>(v); break;
        case Dtype::u16: reinterpret_cast<uint16_t*>(buffer.data())[i] = static_cast<uint16_t>(v); break;
        case Dtype::u8: reinterpret_cast<uint8_t*>(buffer.data())[i] = static_cast<uint8_t>(v); break;
      }
    }
  }

  Tensor read(ValueId id) {
    const ir::Value& value = listing.value(id);
    Tensor t;
    t.dtype = value.dtype;
    t.present = true;
    t.layout = value.layout;
    for (const ir::Dim& dim : value.shape) t.shape.push_back(dim.count);
    const GuardedBuffer& buffer = memory(id);
    if (t.layout == ir::Layout::packed) {
      t.packed.assign(buffer.data(), buffer.data() + buffer.size());
      return t;
    }
    t.values.resize(static_cast<size_t>(t.elements()));
    for (size_t i = 0; i < t.values.size(); ++i) {
      switch (t.dtype) {
        case Dtype::f64: t.values[i] = reinterpret_cast<const double*>(buffer.data())[i]; break;
        case Dtype::f32: t.values[i] = reinterpret_cast<const float*>(buffer.data())[i]; break;
        case Dtype::bf16: t.values[i] = reinterpret_cast<const bf16*>(buffer.data())[i]; break;
        case Dtype::i64:
          t.values[i] = static_cast<double>(reinterpret_cast<const int64_t*>(buffer.data())[i]);
          break;
        case Dtype::i32: t.values[i] = reinterpret_cast<const int32_t*>(buffer.data())[i]; break;
        case Dtype::u16: t.values[i] = reinterpret_cast<const uint16_t*>(buffer.data())[i]; break;
        case Dtype::u8:
          t.values[i] = static_cast<double>(reinterpret_cast<const uint8_t*>(buffer.data())[i]);
          break;
      }
    }
    return t;
  }

 private:
  GuardedBuffer& memory(ValueId id) {
    auto& buffer = memory_[id];
    if (!buffer) buffer = std::make_unique<GuardedBuffer>(listing.bytes(id, ir::FixedRows(0)));
    return *buffer;
  }

  device::TensorView view(ValueId id) {
    if (id == ir::none) return {};
    const ir::Value& value = listing.value(id);
    device::TensorView v{.data = memory(id).data(), .dtype = value.dtype, .layout = value.layout};
    v.rank = static_cast<int8_t>(value.shape.size());
    for (size_t i = 0; i < value.shape.size(); ++i) v.dims[i] = value.shape[i].count;
    return v;
  }

  void run(const ir::Op& op, bool overwrite) {
    const kernels::KernelEntry* kernel = nullptr;
    std::string refusals;
    for (const kernels::KernelEntry& entry : *kernels_) {
      if (kernel || entry.op_kind != op.kind()) continue;
      const Support support = entry.supports ? entry.supports(listing, op) : Support::yes();
      if (support) {
        kernel = &entry;
      } else {
        refusals += " " + support.reason;
      }
    }
    HEDDLE_CHECK(kernel != nullptr, "no kernel for op '{}':{}", op.kind(), refusals);
    ran.push_back(fmt::format("{}: {}.{}", op.kind(), kernel->backend, kernel->name));

    const ir::FixedRows rows(0);
    GuardedBuffer scratch(kernel->scratch_bytes ? kernel->scratch_bytes(listing, op, rows) : 0);
    std::vector<device::TensorView> in, out, updates;
    for (const ValueId id : op.in) in.push_back(view(id));
    for (const ValueId id : op.out) {
      memory(id).poison();
      out.push_back(view(id));
    }
    for (const ValueId id : op.updates) {
      if (overwrite && op.phase != ir::Phase::end) memory(id).poison();
      updates.push_back(view(id));
    }
    run_kernel(*kernel,
               {.op = &op,
                .in = in,
                .out = out,
                .updates = updates,
                .overwrite = overwrite,
                .scratch = scratch.data(),
                .input = op.def->loads ? input.data() : nullptr,
                .place = &place},
               static_cast<int64_t>(scratch.size()));
    EXPECT_TRUE(scratch.guards_hold()) << ran.back() << " wrote outside its scratch";
    for (const auto& [id, buffer] : memory_) {
      EXPECT_TRUE(buffer->guards_hold()) << ran.back() << " wrote outside '" << listing.value(id).name << "'";
    }
  }

  const std::vector<kernels::KernelEntry>* kernels_;
  std::map<ValueId, std::unique_ptr<GuardedBuffer>> memory_;
};

struct OpResult {
  std::vector<Tensor> out, updates;
  std::vector<std::string> ran;
};

/// Runs the op alone. With `overwrite` the contents of `updates` are poisoned first; end ops always see them.
inline OpResult run_op(const OpCase& op, const std::vector<kernels::KernelEntry>& kernels, bool overwrite = false,
                       ir::Phase phase = ir::Phase::F) {
  ListingRunner runner(kernels);
  runner.place = op.place;
  std::vector<ValueId> in, updates;
  for (const Operand& operand : op.in)
    in.push_back(runner.add(operand.tensor, operand.role, fmt::format("in{}", in.size())));
  for (const Tensor& t : op.updates) {
    updates.push_back(runner.add(t, Role::accumulator, fmt::format("updated{}", updates.size())));
  }
  const std::vector<ValueId> out = runner.append(op.kind, in, op.attributes, updates, phase);
  runner.run(overwrite);
  OpResult result;
  for (const ValueId id : out) result.out.push_back(runner.read(id));
  for (const ValueId id : updates) result.updates.push_back(runner.read(id));
  result.ran = runner.ran;
  return result;
}

/// The gradient of an op, for random gradients of its outputs.
struct GradientResult {
  std::vector<Tensor> out;    // of the forward op
  std::vector<Tensor> seeds;  // the gradients of the outputs; absent where an output has none
  std::vector<Tensor> d_in;   // by input; absent where it has no gradient
  std::vector<std::string> ran;
};

/// Runs the op, then the I and W ops that its rule writes. `rounds` > 1 runs everything again, adding to the
/// accumulators. The seeds are the same for every element type; an output that `seeded` denies has no gradient.
inline GradientResult run_with_gradient(const OpCase& op, const std::vector<kernels::KernelEntry>& kernels,
                                        int rounds = 1, uint64_t seed = 99,
                                        const std::function<bool(size_t)>& seeded = nullptr) {
  ListingRunner runner(kernels);
  runner.place = op.place;
  std::vector<ValueId> in;
  for (const Operand& operand : op.in)
    in.push_back(runner.add(operand.tensor, operand.role, fmt::format("in{}", in.size())));
  const std::vector<ValueId> out = runner.append(op.kind, in, op.attributes);
  GradientResult result;
  std::vector<std::pair<ValueId, ValueId>> seeds;
  for (size_t i = 0; i < out.size(); ++i) {
    const ir::Value& value = runner.listing.value(out[i]);
    Tensor d_out;
    if (value.role == Role::activation && is_floating(value.dtype) && (!seeded || seeded(i))) {
      std::vector<int64_t> shape;
      for (const ir::Dim& dim : value.shape) shape.push_back(dim.count);
      d_out = random_tensor(value.dtype, shape, seed + i);
      seeds.emplace_back(out[i], runner.add(d_out, Role::gradient, fmt::format("seed{}", i)));
    }
    result.seeds.push_back(std::move(d_out));
  }
  std::vector<ValueId> wanted(in);
  std::erase(wanted, ir::none);
  const std::vector<ValueId> found = ir::differentiate(runner.listing, ops::find("add"), seeds, wanted);
  for (int round = 0; round < rounds; ++round) runner.run(round == 0);

  for (const ValueId id : out) result.out.push_back(runner.read(id));
  for (const ValueId id : in) {
    Tensor d_in;
    const auto at = std::find(wanted.begin(), wanted.end(), id);
    if (id != ir::none && found[static_cast<size_t>(at - wanted.begin())] != ir::none) {
      d_in = runner.read(found[static_cast<size_t>(at - wanted.begin())]);
    }
    if (const auto uses = runner.listing.accumulators.find(id);
        id != ir::none && uses != runner.listing.accumulators.end()) {
      EXPECT_EQ(uses->second.size(), 1u) << "one op, one use";
      d_in = runner.read(uses->second[0]);
    }
    result.d_in.push_back(std::move(d_in));
  }
  result.ran = runner.ran;
  return result;
}

/// True if `found` equals `expected` within `tolerance` × the largest magnitude expected, `least` at least. NaN
/// never passes.
inline ::testing::AssertionResult close(const Tensor& expected, const Tensor& found, double tolerance,
                                        double least = 0) {
  if (expected.present != found.present) return ::testing::AssertionFailure() << "one of the two is absent";
  if (expected.shape != found.shape) return ::testing::AssertionFailure() << "the shapes differ";
  double most = least;
  for (const double v : expected.values) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (!(std::abs(expected.values[i] - found.values[i]) <= tolerance * most)) {
      return ::testing::AssertionFailure() << "element " << i << " is " << found.values[i] << ", expected "
                                           << expected.values[i] << " (largest " << most << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

/// Whether all bits are equal (of the values as doubles; a zero's sign counts).
inline ::testing::AssertionResult same(const Tensor& expected, const Tensor& found) {
  if (expected.shape != found.shape) return ::testing::AssertionFailure() << "the shapes differ";
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (std::bit_cast<uint64_t>(expected.values[i]) != std::bit_cast<uint64_t>(found.values[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << found.values[i] << ", expected " << expected.values[i];
    }
  }
  return ::testing::AssertionSuccess();
}

/// The value that `load` makes of an input of these numbers, of the type Number.
template <class Number>
Tensor load_numbers(const std::vector<kernels::KernelEntry>& kernels, const std::vector<Number>& numbers,
                    std::vector<std::string>* ran = nullptr) {
  ListingRunner runner(kernels);
  runner.listing.add_input({.name = "given", .dtype = dtype_of<Number>, .shape = {std::ssize(numbers)}});
  const auto bytes = std::as_bytes(std::span(numbers));
  runner.input.assign(bytes.begin(), bytes.end());
  const ValueId value = runner.append("load", {}, {{"input", "given"}}, {})[0];
  runner.run();
  if (ran != nullptr) *ran = runner.ran;
  return runner.read(value);
}

}  // namespace heddle::op_runner
