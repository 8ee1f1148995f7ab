// Distances of each expert's biased scores from being chosen, counted in bins (ops/balance.cpp). T tokens, E
// experts.
//
// First comes each token's middle between the last score that is chosen and the next, its highest taken one by one
// (top-inl.h). Then experts count their bins by blocks of columns as wide as a line of the cache, so that each has
// its own counts. They are whole numbers, which nothing but the scores decides.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/experts/margins.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/router.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/ops/margin_bins.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/top-inl.h"

#ifndef HEDDLE_KERNELS_HOST_MARGINS_CPP  // once for all targets
#define HEDDLE_KERNELS_HOST_MARGINS_CPP
namespace heddle::kernels::host {
constexpr int64_t kExpertBlock = 16;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
using device::KernelCall;

/// A piece of tokens, into scratch.
void MiddlesOfTokens(const KernelCall& call, int64_t begin, int64_t end) {
  const auto *s_TE = call.in[0].as<const float>(), *bias_E = call.in[1].as<const float>();
  const int64_t E = call.in[0].columns(), k = call.op->attributes.integer("top_k");
  auto* middle_T = reinterpret_cast<float*>(call.scratch);
  HWY_ALIGN float biased_E[kMostExperts];
  Orders orders;
  for (int64_t t = begin; t < end; ++t) {
    sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
      store(hn::Add(load(s_TE + t * E + e, lanes), load(bias_E + e, lanes)), biased_E + e, lanes);
    });
    orders.read(biased_E, E);
    for (int64_t j = 1; j < k; ++j) orders.take(E);
    const float last = biased_E[orders.take(E)], next = biased_E[orders.take(E)];
    middle_T[t] = (last + next) / 2;
  }
}

/// A piece of blocks of experts.
void BinsOfExperts(const KernelCall& call, int64_t begin, int64_t end) {
  const auto *s_TE = call.in[0].as<const float>(), *bias_E = call.in[1].as<const float>();
  const auto* middle_T = reinterpret_cast<const float*>(call.scratch);
  const int64_t T = call.in[0].rows(), E = call.in[0].columns();
  auto* margins = call.updates[0].as<double>();
  int32_t counts[kExpertBlock * kMarginBins];
  int32_t bins[kExpertBlock];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kExpertBlock, width = std::min(kExpertBlock, E - first);
    std::fill_n(counts, width * kMarginBins, 0);
    for (int64_t t = 0; t < T; ++t) {
      const float middle = middle_T[t];
      for (int64_t e = 0; e < width; ++e) {
        const float margin = middle - (s_TE[t * E + first + e] + bias_E[first + e]);
        uint32_t word;
        std::memcpy(&word, &margin, sizeof word);
        bins[e] = margin_bin_of(word);
      }
      for (int64_t e = 0; e < width; ++e) ++counts[e * kMarginBins + bins[e]];
    }
    double* to = margins + first * kMarginBins;
    for (int64_t i = 0; i < width * kMarginBins; ++i) to[i] = counts[i] + (call.overwrite ? 0 : to[i]);
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(MiddlesOfTokens);
HWY_EXPORT(BinsOfExperts);

void count_margins(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), E = call.in[0].columns();
  over_rows(call, T, 4 * E * 4, HWY_DYNAMIC_DISPATCH(MiddlesOfTokens));
  over_rows(call, (E + kExpertBlock - 1) / kExpertBlock, T * kExpertBlock * 16,
            HWY_DYNAMIC_DISPATCH(BinsOfExperts));
}
int64_t middle_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[0], rows) / std::max<int64_t>(1, listing.value(op.in[0]).shape[1].count) * 4;
}

Support counts(const ir::Listing& listing, const ir::Op& op) {
  const int64_t E = listing.value(op.in[0]).shape[1].count;
  if (E > kMostExperts) return Support::no(fmt::format("{} experts, at most {}", E, kMostExperts));
  return takes<"aa", "d">(listing, op);
}

}  // namespace

std::vector<KernelEntry> margin_kernels() {
  return {{"count_margins", "host", "highway", counts, middle_scratch, count_margins}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
