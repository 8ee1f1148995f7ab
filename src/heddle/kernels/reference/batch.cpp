// load_tokens, load_starts, load_scales, load_step, load_limits: from the batch of the step into values;
// post_validation, which it tells what was tried.
#include "heddle/device/batch.h"

#include "heddle/ir/axes.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

const device::Batch& batch_of(const KernelCall& call) {
  HEDDLE_CHECK(call.batch != nullptr, "op '{}' runs without a batch", call.op->kind());
  return *call.batch;
}

/// ids − first, where `first` starts this rank's part of the vocabulary; `outside` for ids of other parts.
void shift_ids(const KernelCall& call) {
  const auto size = static_cast<int32_t>(call.op->attributes.integer("size"));
  const auto outside = static_cast<int32_t>(call.op->attributes.integer("outside"));
  HEDDLE_CHECK(call.place != nullptr, "op '{}' runs without a place in the mesh", call.op->kind());
  const int32_t first = size * call.place->at(ir::Axis::tp);
  for (int64_t t = 0; t < call.in[0].elements(); ++t) {
    const int32_t id = call.in[0].as<const int32_t>()[t];
    const bool here = id >= first && id - first < size;
    call.out[0].as<int32_t>()[t] = id < 0 ? -1 : here ? id - first : outside;
  }
}

/// With cp ranks, only the positions that this one holds.
/// ids_d[b·S + s] = tokens[b, s + d] for d = 0 … D, then labels_d the same for d = 1 … D + 1 with −1 where masked.
void load_tokens(const KernelCall& call) {
  const int64_t rows = call.op->attributes.integer("rows"), cp = call.op->attributes.integer_or("cp", 1);
  const int64_t T = rows * cp;
  const int64_t S = call.op->attributes.integer("sequence");
  const int64_t depths = call.op->attributes.integer("depths");
  const device::Batch& batch = batch_of(call);
  HEDDLE_CHECK(cp == 1 || call.place != nullptr, "op '{}' runs without a place in the mesh", call.op->kind());
  const int place = cp == 1 ? 0 : call.place->at(ir::Axis::cp);
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
      for (int64_t j = 0; j < S / cp; ++j) {
        const auto from = static_cast<size_t>(b * width + ir::position(j, S, place, static_cast<int>(cp)) + shift);
        const bool hidden = mine.tokens[from] < 0 || (label && !mine.masked.empty() && mine.masked[from] != 0);
        *to++ = hidden ? -1 : mine.tokens[from];
      }
    }
  }
}

void load_starts(const KernelCall& call) {
  const int64_t S = call.op->attributes.integer("sequence"), B = call.op->attributes.integer("rows") / S;
  const int64_t end = call.op->attributes.integer("document_end");
  const std::vector<int32_t>& tokens = batch_of(call).microbatches.at(static_cast<size_t>(call.microbatch)).tokens;
  const int64_t width = B == 0 ? 0 : std::ssize(tokens) / B;
  HEDDLE_CHECK(B == 0 || (width >= S && std::ssize(tokens) == B * width),
               "a microbatch has {} ids, {} times {} are expected", tokens.size(), B, S);
  auto* to = call.out[0].as<int32_t>();
  for (int64_t b = 0; b < B; ++b) {
    int32_t start = 0;
    for (int64_t s = 0; s < S; ++s) {
      if (s > 0 && tokens[static_cast<size_t>(b * width + s - 1)] == end) start = static_cast<int32_t>(s);
      *to++ = start;
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
  const device::Batch& batch = batch_of(call);
  *std::copy(batch.hyper.begin(), batch.hyper.end(), call.out[0].as<double>()) = batch.bias_rate;
}

void load_limits(const KernelCall& call) {
  const device::Batch& batch = batch_of(call);
  std::copy(batch.limits.begin(), batch.limits.end(), call.out[0].as<double>());
}

void post_validation(const KernelCall& call) {
  const device::Batch& batch = batch_of(call);
  const double clip = call.in[1].as<const double>()[0];
  call.updates[0].as<double>()[0] = call.in[0].as<const double>()[0];
  call.out[0].as<int32_t>()[0] = !batch.guessed || clip == 1 ? 0 : clip == 0 ? 2 : 1;
  call.out[1].as<int32_t>()[0] = batch.attempts;
}

}  // namespace

std::vector<KernelEntry> batch_kernels() {
  return {entry("load_tokens", load_tokens),
          entry("shift_ids", shift_ids),
          entry("load_starts", load_starts),
          entry("load_scales", by_type<out0, load_scales<float>, load_scales<double>>),
          entry("load_step", load_step),
          entry("load_limits", load_limits),
          entry("post_validation", post_validation)};
}

}  // namespace heddle::kernels::reference
