// load_tokens, load_weights, load_references, load_starts, load_positions, load_dropout, load_scales, load_step,
// load_limits: from the batch of
// the step into values; post_validation, which it tells what was tried.
#include "heddle/device/batch.h"

#include <limits>

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

/// The rows of a microbatch that this rank holds: with cp ranks, only its positions.
class HeldRows {
 public:
  explicit HeldRows(const KernelCall& call)
      : micro_(batch_of(call).microbatches.at(static_cast<size_t>(call.microbatch))),
        cp_(static_cast<int>(call.op->attributes.integer_or("cp", 1))),
        S_(call.op->attributes.integer("sequence")),
        B_(call.op->attributes.integer("rows") * cp_ / S_),
        width_(S_ + 1 + call.op->attributes.integer("depths")) {
    HEDDLE_CHECK(cp_ == 1 || call.place != nullptr, "op '{}' runs without a place in the mesh", call.op->kind());
    if (cp_ > 1) place_ = call.place->at(ir::Axis::cp);
    HEDDLE_CHECK(std::ssize(micro_.tokens) == B_ * width_, "a microbatch has {} ids, {}×{} are expected",
                 micro_.tokens.size(), B_, width_);
    const auto fits = [&](size_t size) { return size == 0 || size == micro_.tokens.size(); };
    HEDDLE_CHECK(fits(micro_.masked.size()), "{} mask entries for {} ids", micro_.masked.size(),
                 micro_.tokens.size());
    HEDDLE_CHECK(fits(micro_.weights.size()) && fits(micro_.begins.size()), "{} weights and {} marks for {} ids",
                 micro_.weights.size(), micro_.begins.size(), micro_.tokens.size());
  }
  const device::Microbatch& micro() const { return micro_; }
  /// body(at): where the id of each row stands in the microbatch.
  template <class Body>
  void for_each(Body body) const {
    for (int64_t b = 0; b < B_; ++b) {
      for (int64_t j = 0; j < S_ / cp_; ++j)
        body(static_cast<size_t>(b * width_ + ir::position(j, S_, place_, cp_)));
    }
  }

 private:
  const device::Microbatch& micro_;
  int cp_, place_ = 0;
  int64_t S_, B_, width_;
};

/// ids_d[b·S + s] = tokens[b, s + d] for d = 0 … D, then labels_d the same for d = 1 … D + 1 with −1 where masked,
/// and where another sample begins on the way there.
void load_tokens(const KernelCall& call) {
  const HeldRows rows(call);
  const auto depths = static_cast<size_t>(call.op->attributes.integer("depths"));
  const device::Microbatch& mine = rows.micro();
  for (size_t i = 0; i < 2 * depths + 2; ++i) {
    const bool label = i > depths;
    const size_t shift = label ? i - depths : i;
    auto* to = call.out[i].as<int32_t>();
    rows.for_each([&](size_t at) {
      const bool is_none = label ? !mine.is_label(at, shift) : mine.tokens[at + shift] < 0;
      *to++ = is_none ? -1 : mine.tokens[at + shift];
    });
  }
}

/// weights_d[b·S + s]: how much the id d places on counts, 1 where nothing says.
void load_weights(const KernelCall& call) {
  const HeldRows rows(call);
  for (size_t d = 1; d <= call.out.size(); ++d) {
    auto* to = call.out[d - 1].as<double>();
    rows.for_each([&](size_t at) {
      *to++ = rows.micro().weights.empty() ? 1 : static_cast<double>(rows.micro().weights[at + d]);
    });
  }
}

void load_references(const KernelCall& call) {
  const std::vector<double>& references =
      batch_of(call).microbatches.at(static_cast<size_t>(call.microbatch)).references;
  HEDDLE_CHECK(std::ssize(references) == call.out[0].elements(), "{} references, {} are expected",
               references.size(), call.out[0].elements());
  std::copy(references.begin(), references.end(), call.out[0].as<double>());
}

/// Of each position of B sequences of S, the last up to it at which a document begins: behind an id `end`, or, for
/// −1, where the batch marks it; 0 where there is none.
std::vector<int32_t> starts_of(const device::Microbatch& mine, int64_t B, int64_t S, int64_t end) {
  const int64_t width = B == 0 ? 0 : std::ssize(mine.tokens) / B;
  HEDDLE_CHECK(B == 0 || (width >= S && std::ssize(mine.tokens) == B * width),
               "a microbatch has {} ids, {} times {} are expected", mine.tokens.size(), B, S);
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < B; ++b) {
    int32_t start = 0;
    for (int64_t s = 0; s < S; ++s) {
      const auto at = static_cast<size_t>(b * width + s);
      const bool begins = end >= 0 ? s > 0 && mine.tokens[at - 1] == end
                                   : !mine.begins.empty() && mine.begins[at] != Begins::nothing;
      if (begins) start = static_cast<int32_t>(s);
      starts.push_back(start);
    }
  }
  return starts;
}

void load_starts(const KernelCall& call) {
  const int64_t S = call.op->attributes.integer("sequence"), B = call.op->attributes.integer("rows") / S;
  const std::vector<int32_t> starts =
      starts_of(batch_of(call).microbatches.at(static_cast<size_t>(call.microbatch)), B, S,
                call.op->attributes.integer_or("document_end", -1));
  std::copy(starts.begin(), starts.end(), call.out[0].as<int32_t>());
}

/// Of row t of a rank of cp and tp: its sequence of the microbatch, and its position there.
struct RowPlaces {
  explicit RowPlaces(const KernelCall& call)
      : S(call.op->attributes.integer("sequence")),
        cp(static_cast<int>(call.op->attributes.integer_or("cp", 1))),
        tp(static_cast<int>(call.op->attributes.integer_or("tp", 1))),
        local(S / (int64_t{cp} * tp)) {
    HEDDLE_CHECK((cp == 1 && tp == 1) || call.place != nullptr, "op '{}' runs without a place in the mesh",
                 call.op->kind());
    if (cp > 1) of_cp = call.place->at(ir::Axis::cp);
    if (tp > 1) of_tp = call.place->at(ir::Axis::tp);
  }
  int64_t sequence(int64_t t) const { return t / local; }
  int64_t position(int64_t t) const { return ir::position(of_tp * local + t % local, S, of_cp, cp); }

  int64_t S;
  int cp, tp, of_cp = 0, of_tp = 0;
  int64_t local;  // rows of a sequence
};

void load_positions(const KernelCall& call) {
  const int64_t T = call.out[0].elements();
  auto* to = call.out[0].as<int32_t>();
  if (call.op->attributes.integer_or("cached", 0) != 0) {
    const std::vector<int32_t>& places = batch_of(call).places;
    const auto S = static_cast<int32_t>(call.op->attributes.integer("sequence"));
    HEDDLE_CHECK(std::ssize(places) == T, "{} places, {} are expected", places.size(), T);
    for (const int32_t place : places) *to++ = place < 0 ? -1 : place % S;
    return;
  }
  const RowPlaces rows(call);
  if (call.op->attributes.integer_or("apart", 0) == 0) {
    for (int64_t t = 0; t < T; ++t) to[t] = static_cast<int32_t>(rows.position(t));
    return;
  }
  const std::vector<int32_t> starts =
      starts_of(batch_of(call).microbatches.at(static_cast<size_t>(call.microbatch)), T / rows.local, rows.S,
                call.op->attributes.integer_or("document_end", -1));
  for (int64_t t = 0; t < T; ++t) {
    const int64_t s = rows.position(t);
    to[t] = static_cast<int32_t>(s) - starts[static_cast<size_t>(rows.sequence(t) * rows.S + s)];
  }
}

void load_dropout(const KernelCall& call) {
  const device::Batch& batch = batch_of(call);
  const RowPlaces rows(call);
  const int64_t first = batch.microbatches.at(static_cast<size_t>(call.microbatch)).first_sequence;
  const int64_t T = call.out[0].elements();
  HEDDLE_CHECK((first + T / rows.local) * rows.S <= std::numeric_limits<int32_t>::max(),
               "dropout counts tokens of a step up to 2^31, not those of sequence {}", first);
  for (int64_t t = 0; t < T; ++t)
    call.out[0].as<int32_t>()[t] = static_cast<int32_t>((first + rows.sequence(t)) * rows.S + rows.position(t));
  auto* key = call.out[1].as<int32_t>();
  key[0] = static_cast<int32_t>(batch.seed);
  key[1] = static_cast<int32_t>(batch.seed >> 32);
  key[2] = static_cast<int32_t>(batch.step);
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
          entry("load_weights", load_weights),
          entry("load_references", load_references),
          entry("load_starts", load_starts),
          entry("load_positions", load_positions),
          entry("load_dropout", load_dropout),
          entry("load_scales", by_type<out0, load_scales<float>, load_scales<double>>),
          entry("load_step", load_step),
          entry("load_limits", load_limits),
          entry("post_validation", post_validation)};
}

}  // namespace heddle::kernels::reference
