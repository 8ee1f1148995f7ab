// Choices of a microbatch that keep a place with their expert. T tokens, k experts a token, E experts of C places.
// See ops/experts/capacity.cpp.
#include <algorithm>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// in: g, row_of, token_of, offsets; out: kept, place_of, token_of_places, local_offsets, counts. Rows of an expert
/// are in increasing token, and so are those that keep a place. A gate that is no number comes after all others.
template <class A>
void apply_capacity(const KernelCall& call) {
  const Input<A> g_Tk(call.in[0]);
  const auto *row_of_Tk = call.in[1].as<const int32_t>(), *token_of_R = call.in[2].as<const int32_t>();
  const auto* offsets = call.in[3].as<const int32_t>();
  const int64_t k = call.in[0].dim(1), E = call.in[3].elements() - 1, C = call.op->attributes.integer("places");
  const Output<A> kept_Tk(call.out[0]);
  auto *place_of_Tk = call.out[1].as<int32_t>(), *token_of_EC = call.out[2].as<int32_t>();
  kept_Tk.fill(A(0));
  std::fill_n(place_of_Tk, call.out[1].elements(), -1);
  std::fill_n(token_of_EC, E * C, -1);
  std::vector<int64_t> slots;
  for (int64_t e = 0; e < E; ++e) {
    slots.clear();
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      const int32_t* rows_k = row_of_Tk + token_of_R[r] * k;
      slots.push_back(token_of_R[r] * k + (std::find(rows_k, rows_k + k, static_cast<int32_t>(r)) - rows_k));
    }
    if (std::ssize(slots) > C) {
      std::nth_element(slots.begin(), slots.begin() + C, slots.end(), [&](int64_t a, int64_t b) {
        const bool nan = g_Tk[a] != g_Tk[a], other_nan = g_Tk[b] != g_Tk[b];
        if (nan != other_nan) return other_nan;
        return !nan && g_Tk[a] != g_Tk[b] ? g_Tk[a] > g_Tk[b] : a < b;
      });
      slots.resize(static_cast<size_t>(C));
      std::sort(slots.begin(), slots.end());
    }
    auto place = static_cast<int32_t>(e * C);
    for (const int64_t slot : slots) {
      kept_Tk[slot] = g_Tk[slot];
      token_of_EC[place] = static_cast<int32_t>(slot / k);
      place_of_Tk[slot] = place++;
    }
  }
  const int64_t sources = call.out[4].dim(1), P = call.out[4].dim(2);
  for (int64_t p = 0; p <= P; ++p) call.out[3].as<int32_t>()[p] = static_cast<int32_t>(p * sources * C);
  std::fill_n(call.out[4].as<int32_t>(), call.out[4].elements(), static_cast<int32_t>(C));
}

template <class A>
void apply_capacity_dgrad(const KernelCall& call) {
  const Input<A> dkept_Tk(call.in[0]);
  const auto* place_of_Tk = call.in[1].as<const int32_t>();
  const Output<A> dg_Tk(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) dg_Tk[i] = place_of_Tk[i] < 0 ? A(0) : dkept_Tk[i];
}

void count_dropped(const KernelCall& call) {
  const auto* place_of_Tk = call.in[0].as<const int32_t>();
  const auto dropped =
      std::count_if(place_of_Tk, place_of_Tk + call.in[0].elements(), [](int32_t p) { return p < 0; });
  auto* sum = accumulator<double>(call.updates[0]);
  *sum = static_cast<double>(dropped) + (call.overwrite ? 0 : *sum);
}

}  // namespace

std::vector<KernelEntry> capacity_kernels() {
  return {entry("apply_capacity", by_type<in0, apply_capacity<float>, apply_capacity<double>>),
          entry("apply_capacity_dgrad", by_type<in0, apply_capacity_dgrad<float>, apply_capacity_dgrad<double>>),
          entry("count_dropped", count_dropped)};
}

}  // namespace heddle::kernels::reference
