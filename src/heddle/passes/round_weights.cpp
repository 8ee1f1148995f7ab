#include "heddle/passes/round_weights.h"

#include <algorithm>
#include <utility>

#include "heddle/ir/uses.h"
#include "heddle/ops/fp8_blocks.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

constexpr const char *kBytes = ".fp8", *kScales = ".fp8_scales";
constexpr const char *kTurned = ".fp8_turned", *kTurnedScales = ".fp8_turned_scales";

struct RoundedForm {
  ValueId bytes = none, scales = none;
};

// True if the op reads this weight as one that it rounds itself.
bool rounds(const Op& op, ValueId weight) {
  if (ir::place_of("w_scales", op.def->operands) < 0 || op.operand("w") != weight) return false;
  const bool has_copies = ir::place_of("copies", op.def->operands) >= 0 && op.operand("copies") != none;
  return op.operand("w_scales") == none && !has_copies;
}
// True if the op is a gradient: its rows come as they are, and it may read the weight turned.
bool takes_turned(const Op& op) { return ir::place_of("turned", op.def->attributes) >= 0; }

void read_form(const ir::Listing& listing, Op& op, const RoundedForm& form, bool turned) {
  if (ir::place_of("q", op.def->operands) >= 0) {
    op.attributes.set("dtype", std::string(name_of(listing.value(op.operand("w")).dtype)));
  } else if (turned) {
    op.attributes.set("turned", int64_t{1});
  }
  const auto place = [&](std::string_view name) {
    return static_cast<size_t>(ir::place_of(name, op.def->operands));
  };
  op.in.resize(std::max(op.in.size(), place("w_scales") + 1), none);
  op.in[place("w")] = form.bytes;
  op.in[place("w_scales")] = form.scales;
}

class WeightRounder {
 public:
  WeightRounder(ir::Listing& listing, int microbatches, bool turns)
      : listing_(listing), uses_(listing), microbatches_(microbatches), turns_(turns) {}

  void run() {
    std::vector<Op> made;
    const auto count = static_cast<ValueId>(listing_.values.size());
    for (ValueId w = 0; w < count; ++w) {
      const ir::Value& weight = listing_.value(w);
      if (weight.role != ir::Role::weight || weight.space != ir::Space::device || weight.part_of != none) continue;
      std::vector<int> readers;
      for (const int reader : uses_.readers(w)) {
        if (rounds(uses_.op(reader), w)) readers.push_back(reader);
      }
      if (std::ssize(readers) * microbatches_ > 1) made.push_back(round(w, readers));
    }
    for (Op& op : made) listing_.append(std::move(op), {});
  }

 private:
  RoundedForm form(ValueId w, const char* bytes, const char* scales, bool turned) {
    ir::Value value = listing_.value(w);
    const std::string name = value.name;
    const size_t last = value.shape.size() - 1;
    value.frozen = false;
    value.dtype = Dtype::u8;
    if (turned) std::swap(value.shape[last - 1], value.shape[last]);
    ir::Value of_blocks = value;
    for (const size_t i : {last - 1, last})
      of_blocks.shape[i] = ir::Dim{fp8::blocks_of(of_blocks.shape[i].count), none};
    value.name = name + bytes;
    of_blocks.name = name + scales;
    const ValueId first = listing_.add_value(std::move(value));
    return {first, listing_.add_value(std::move(of_blocks))};
  }

  // The chunk in whose beginning the weight is rounded: that in which it is gathered, else the one that uses it.
  int chunk_of(ValueId w, const std::vector<int>& readers) const {
    for (const int writer : uses_.updaters(w)) {
      if (uses_.op(writer).phase == ir::Phase::begin) return uses_.op(writer).chunk;
    }
    const int first = uses_.op(readers[0]).chunk;
    const bool one =
        std::all_of(readers.begin(), readers.end(), [&](int reader) { return uses_.op(reader).chunk == first; });
    return one ? first : ir::kAllChunks;
  }

  Op round(ValueId w, const std::vector<int>& readers) {
    Op op;
    op.def = &ops::find("round_weight");
    op.in = {w};
    op.phase = ir::Phase::begin;
    op.chunk = chunk_of(w, readers);
    const RoundedForm plain = form(w, kBytes, kScales, false);
    op.updates = {plain.bytes, plain.scales};
    RoundedForm turned;
    for (const int reader : readers) {
      const bool turns = turns_ && takes_turned(uses_.op(reader));
      if (turns && turned.bytes == none) {
        turned = form(w, kTurned, kTurnedScales, true);
        op.updates.insert(op.updates.end(), {turned.bytes, turned.scales});
      }
      read_form(listing_, listing_.ops[reader], turns ? turned : plain, turns);
    }
    return op;
  }

  ir::Listing& listing_;
  const ir::Uses uses_;
  int microbatches_;
  bool turns_;
};

}  // namespace

void round_weights(ir::Listing& listing, int microbatches, bool turns) {
  WeightRounder(listing, microbatches, turns).run();
}

void share_rounded_weights(ir::Listing& listing, const ir::Listing& owner, int index) {
  const auto shared = [&](ValueId id) {
    ir::Value value = owner.value(id);
    const ValueId known = listing.find(value.name);
    if (known != none) return known;
    value.shared_with = index;
    return listing.add_value(std::move(value));
  };
  for (Op& op : listing.ops) {
    if (ir::place_of("w_scales", op.def->operands) < 0 || !rounds(op, op.operand("w"))) continue;
    const std::string name = listing.value(op.operand("w")).name;
    const ValueId bytes = owner.find(name + kBytes);
    if (listing.value(op.operand("w")).role != ir::Role::weight || bytes == none) continue;
    const RoundedForm plain{shared(bytes), shared(owner.find(name + kScales))};
    read_form(listing, op, plain, false);
  }
}

}  // namespace heddle::passes
