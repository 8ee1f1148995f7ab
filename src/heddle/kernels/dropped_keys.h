// The probabilities that attention drops. A query's token and a head have a word of Philox for each key. The
// counter is (key's position ÷ 4, token of the whole batch, site and head, step), the key the run's seed; word i of
// the four is that of position 4·(position ÷ 4) + i. The head is that of the whole model, the position that in the
// whole sequence: no cut among ranks changes either.
#pragma once

#include <optional>

#include "heddle/kernels/dropout_words.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels {

class DroppedKeys {
 public:
  /// Drops nothing where the op has no rate.
  explicit DroppedKeys(const device::KernelCall& call) {
    if (!call.op->attributes.has("rate")) return;
    draw_.emplace(*call.op, named_operand(call, "key").as<const int32_t>());
    tokens_ = named_operand(call, "tokens").as<const int32_t>();
    first_head_ = first_head(*call.op, call.place);
    factor_ = 1 / (1 - call.op->attributes.number("rate"));
  }
  explicit operator bool() const { return draw_.has_value(); }

  /// Writes the factors of the probabilities of the positions [first, first + count), both multiples of 4: 0, or 1
  /// ÷ (1 − rate). `row`: of the call's queries; `head`: of this rank's.
  template <class A>
  void factors(int64_t row, int64_t head, int64_t first, int64_t count, A* to) const {
    DropoutDraw draw = *draw_;
    draw.site |= static_cast<uint32_t>(first_head_ + head + 1) << kSiteBits;
    for (int64_t n = 0; n < count; n += 4) {
      const Philox::Words words = draw.words((first + n) / 4, tokens_[row]);
      for (size_t i = 0; i < 4; ++i)
        to[n + static_cast<int64_t>(i)] = words[i] >= draw.least_kept ? static_cast<A>(factor_) : A(0);
    }
  }

 private:
  static constexpr int kSiteBits = 16;  // above them stands the head, from 1: no site of `dropout` has it

  // The index of this rank's first head in the whole model: heads are cut among tp, and by `ulysses` and `hybrid`
  // each part among neighbours of cp.
  static int64_t first_head(const ir::Op& op, const ir::Coordinates* place) {
    if (place == nullptr) return 0;
    const int64_t heads = op.attributes.integer("heads"), parts = op.attributes.integer_or("head_parts", 1);
    return (place->at(ir::Axis::tp) * parts + place->at(ir::Axis::cp) % parts) * heads;
  }

  std::optional<DropoutDraw> draw_;
  const int32_t* tokens_ = nullptr;
  int64_t first_head_ = 0;
  double factor_ = 1;
};

}  // namespace heddle::kernels
