// load_tokens, load_scales, load_step: from the batch of the step into values.
#include "heddle/device/batch.h"

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

const device::Batch& batch_of(const KernelCall& call) {
  HEDDLE_CHECK(call.batch != nullptr, "op '{}' runs without a batch", call.op->kind());
  return *call.batch;
}

/// ids_d[b·S + s] = tokens[b, s + d] for d = 0 … D, then labels_d the same for d = 1 … D + 1 with −1 where masked.
void load_tokens(const KernelCall& call) {
  const int64_t T = call.op->attributes.integer("rows");
  const int64_t S = call.op->attributes.integer("sequence");
  const int64_t depths = call.op->attributes.integer("depths");
  const device::Batch& batch = batch_of(call);
  const device::Microbatch& mine = batch.microbatches.at(static_cast<size_t>(call.microbatch));
  const int64_t B = T / S, width = S + 1 + depths;
  HEDDLE_CHECK(std::ssize(mine.tokens) == B * width, "a microbatch has {} ids, {}×{} are expected",
               mine.tokens.size(), B, width);
  HEDDLE_CHECK(mine.masked.empty() || mine.masked.size() == mine.tokens.size(), "{} mask entries for {} ids",
               mine.masked.size(), mine.tokens.size());
  for (int64_t i = 0; i < 2 * depths + 2; ++i) {
    const bool label = i > depths;
    const int64_t shift = label ? i - depths : i;
    auto* to = call.out[static_cast<size_t>(i)].as<int32_t>();
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t s = 0; s < S; ++s) {
        const auto from = static_cast<size_t>(b * width + s + shift);
        const bool hidden = mine.tokens[from] < 0 || (label && !mine.masked.empty() && mine.masked[from] != 0);
        to[b * S + s] = hidden ? -1 : mine.tokens[from];
      }
    }
  }
}

template <class A>
void load_scales(const KernelCall& call) {
  const std::vector<double>& scales = batch_of(call).scales;
  HEDDLE_CHECK(std::ssize(scales) == call.out[0].elements(), "{} loss scales, {} are expected", scales.size(),
               call.out[0].elements());
  for (size_t i = 0; i < scales.size(); ++i) call.out[0].as<A>()[i] = static_cast<A>(scales[i]);
}

void load_step(const KernelCall& call) {
  const auto& hyper = batch_of(call).hyper;
  std::copy(hyper.begin(), hyper.end(), call.out[0].as<double>());
}

}  // namespace

std::vector<KernelEntry> batch_kernels() {
  return {entry("load_tokens", load_tokens),
          entry("load_scales", by_type<out0, load_scales<float>, load_scales<double>>),
          entry("load_step", load_step)};
}

}  // namespace heddle::kernels::reference
