// Plain movers: split and concat of columns (bytes unchanged), add, accumulate, the rounding of attention by parts.
// T rows.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/shape.cpp"
#include <cstring>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

template <class X>
void add(const KernelCall& call, int64_t begin, int64_t end) {
  const X *a = call.in[0].as<const X>() + begin, *b = call.in[1].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto)
                         HEDDLE_BODY { store(hn::Add(load(a + i, lanes), load(b + i, lanes)), y + i, lanes); });
}

template <class X>
void accumulate(const KernelCall& call, int64_t begin, int64_t end) {
  const X* p = call.in[0].as<const X>() + begin;
  float* acc = call.updates[0].as<float>() + begin;
  if (call.overwrite) {
    sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(p + i, lanes), acc + i, lanes); });
  } else {
    sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      store(hn::Add(load(acc + i, lanes), load(p + i, lanes)), acc + i, lanes);
    });
  }
}

template <class X>
void round_to(const KernelCall& call, int64_t begin, int64_t end) {
  const float* from = call.in[0].as<const float>() + begin;
  X* to = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(from + i, lanes), to + i, lanes); });
}

}  // namespace

void AddPiece(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? add<bf16>(call, begin, end) : add<float>(call, begin, end);
}
void AccumulatePiece(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? accumulate<bf16>(call, begin, end) : accumulate<float>(call, begin, end);
}
void RoundPiece(const KernelCall& call, int64_t begin, int64_t end) {
  call.out[0].dtype == Dtype::bf16 ? round_to<bf16>(call, begin, end) : round_to<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(AddPiece);
HWY_EXPORT(AccumulatePiece);
HWY_EXPORT(RoundPiece);

void add(const KernelCall& call) {
  over_rows(call, call.in[0].elements(), 3 * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(AddPiece),
            kElementsPerPiece);
}

void attention_finish(const KernelCall& call) {
  over_rows(call, call.in[0].elements(), 4 + size_of(call.out[0].dtype), HWY_DYNAMIC_DISPATCH(RoundPiece),
            kElementsPerPiece);
}

/// acc may be f64 (a loss, a load): those are a few numbers.
void accumulate(const KernelCall& call) {
  const device::TensorView &p = call.in[0], &acc = call.updates[0];
  if (acc.dtype == Dtype::f64) {
    auto* sums = acc.as<double>();
    const auto* terms = p.as<const double>();
    for (int64_t i = 0; i < acc.elements(); ++i) sums[i] = call.overwrite ? terms[i] : sums[i] + terms[i];
    return;
  }
  over_rows(call, p.elements(), size_of(p.dtype) + 8, HWY_DYNAMIC_DISPATCH(AccumulatePiece), kElementsPerPiece);
}

Support accumulates(const ir::Listing& listing, const ir::Op& op) {
  const Dtype from = listing.value(op.in[0]).dtype, to = listing.value(op.updates[0]).dtype;
  if (to == Dtype::f64) {
    return from == Dtype::f64 ? Support::yes() : Support::no(fmt::format("{} added to f64", name_of(from)));
  }
  return takes<"x", "a">(listing, op);
}

/// A block of `width` bytes a row between matrices with these bytes a row; zeros where `from` is null.
void copy_columns(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t width,
                  int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    if (from) {
      std::memcpy(to + t * to_pitch, from + t * from_pitch, static_cast<size_t>(width));
    } else {
      std::memset(to + t * to_pitch, 0, static_cast<size_t>(width));
    }
  }
}

void split(const KernelCall& call) {
  const device::TensorView& x = call.in[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);  // each as a row of its own
  const int64_t pitch = x.columns() / runs * size_of(x.dtype);
  const int64_t a = call.op->attributes.integer("first") * size_of(x.dtype);
  const auto* from = x.as<const std::byte>();
  over_rows(x.rows() * runs, 2 * pitch, [&](int64_t begin, int64_t end) {
    copy_columns(call.out[0].as<std::byte>(), a, from, pitch, a, begin, end);
    copy_columns(call.out[1].as<std::byte>(), pitch - a, from + a, pitch, pitch - a, begin, end);
  });
}

void concat(const KernelCall& call) {
  const device::TensorView& y = call.out[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);
  const int64_t pitch = y.columns() / runs * size_of(y.dtype);
  const int64_t a = call.op->attributes.integer("first") * size_of(y.dtype), b = pitch - a;
  const auto part = [&](size_t i) {
    return i < call.in.size() ? call.in[i].as<const std::byte>() : static_cast<const std::byte*>(nullptr);
  };
  over_rows(y.rows() * runs, 2 * pitch, [&](int64_t begin, int64_t end) {
    copy_columns(y.as<std::byte>(), pitch, part(0), a, a, begin, end);
    copy_columns(y.as<std::byte>() + a, pitch, part(1), b, b, begin, end);
  });
}

}  // namespace

std::vector<KernelEntry> shape_kernels() {
  // Bytes have no type to refuse.
  return {{"split", "host", "copy", nullptr, nullptr, split},
          {"concat", "host", "copy", nullptr, nullptr, concat},
          {"add", "host", "highway", takes<"xx">, nullptr, add},
          {"attention_finish", "host", "highway", takes<"a">, nullptr, attention_finish},
          {"accumulate", "host", "highway", accumulates, nullptr, accumulate}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
