#include "heddle/passes/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/base/error.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/adapter_targets.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::ValueId;
using model::Parameter;

constexpr std::string_view kWeightEnding = ".weight";
constexpr std::string_view kCopies = "copies";  // a result, and the operand that reads it

/// The adapter beside a weight: A, and B of each released matrix.
struct AdapterPair {
  ValueId down = none;
  std::vector<ValueId> up;
};

class AdapterWriter {
 public:
  AdapterWriter(model::RankText& text, const Adapters& chosen, const ir::Coordinates& place)
      : text_(text), listing_(text.listing), chosen_(chosen), place_(place) {}

  void write(Targets& targets) {
    freeze();
    std::vector<Parameter> before = std::move(text_.parameters);
    text_.parameters.clear();
    for (const Parameter& p : before) {
      text_.parameters.push_back(p);
      if (targets.has(p, listing_)) pairs_[p.value] = add_pair(p);
    }
    std::vector<ir::Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (ir::Op& op : ops) {
      const auto weight = std::find_if(op.in.begin(), op.in.end(), [&](ValueId id) { return pairs_.contains(id); });
      if (weight == op.in.end()) {
        listing_.ops.push_back(std::move(op));
      } else if (ir::place_of(kCopies, op.def->results) == 0) {
        fetch(op, *weight);
      } else {
        adapt(op, *weight);
      }
    }
  }

 private:
  void freeze() {
    for (ir::Value& value : listing_.values) value.frozen = value.role == ir::Role::weight;
    for (Parameter& p : text_.parameters) {
      p.trained = false;
      p.frozen = p.start != Parameter::Start::rope_table;
    }
  }

  AdapterPair add_pair(const Parameter& base) {
    const ir::Shape shape = listing_.value(base.value).shape;  // [E]? N K, of this rank
    const auto columns = static_cast<int>(shape.size()) - 1, rows = columns - 1;
    const auto parts = std::ssize(base.released);
    const std::string prefix =
        base.name.substr(0, base.name.rfind('.', base.name.size() - kWeightEnding.size() - 1) + 1);
    AdapterPair pair;

    Parameter down = without_cut(base, rows);
    down.name = stem_of(base.name) + std::string(kAdapterDown);
    int64_t read = shape[columns].count;
    for (const model::Cut& cut : down.cuts) {
      if (cut.dim == columns) read *= place_.of(cut.axis);
    }
    // The variance of Kaiming's uniform distribution with a = √5, from which PEFT's A begins.
    down.start = Parameter::Start::normal;
    down.deviation = 1 / std::sqrt(3.0 * static_cast<double>(read));
    down.released.clear();
    for (int64_t i = 0; i < parts; ++i) {
      const std::string name = stem_of(base.released[i].name) + std::string(kAdapterDown);
      down.released.push_back({name, i * chosen_.rank, chosen_.rank});
    }
    ir::Shape down_shape = shape;
    down_shape[rows].count = parts * chosen_.rank;
    pair.down = add(std::move(down), base, std::move(down_shape));

    for (const model::ReleasedPart& released : base.released) {
      HEDDLE_CHECK(released.rows == base.released[0].rows, "'{}' is not of equal parts", base.name);
      Parameter up = without_cut(base, columns);
      up.name = prefix + module_of(released.name) + std::string(kAdapterUp);
      up.start = Parameter::Start::zeros;
      up.released = {{stem_of(released.name) + std::string(kAdapterUp), 0, released.rows}};
      for (model::Cut& cut : up.cuts) {
        if (cut.dim == rows && cut.parts == parts) cut.parts = 1;
      }
      ir::Shape up_shape = shape;
      up_shape[rows].count /= parts;
      up_shape[columns].count = chosen_.rank;
      pair.up.push_back(add(std::move(up), base, std::move(up_shape)));
    }
    return pair;
  }

  // A parameter that is trained, with the base's cuts but for those of one dim: ranks that these told apart hold
  // copies.
  static Parameter without_cut(const Parameter& base, int dim) {
    Parameter p = base;
    p.trained = p.decays = true;
    p.frozen = false;
    p.value = none;
    p.cuts.clear();
    for (const model::Cut& cut : base.cuts) {
      if (cut.dim != dim) {
        p.cuts.push_back(cut);
      } else if (cut.axis == ir::Axis::tp) {
        p.replica_group = "stage";
      } else {
        HEDDLE_CHECK(cut.axis == ir::Axis::etp, "'{}' is cut by {}", base.name, name_of(cut.axis));
        p.replica_group = "expert";
      }
    }
    return p;
  }

  ValueId add(Parameter p, const Parameter& base, ir::Shape shape) {
    ir::Value value;
    value.name = p.name;
    value.dtype = listing_.value(base.value).dtype;
    value.shape = std::move(shape);
    value.role = ir::Role::weight;
    p.value = listing_.add_value(std::move(value));
    text_.parameters.push_back(std::move(p));
    return text_.parameters.back().value;
  }

  // Copies of a weight, of whoever owns it: of what stands beside it, likewise.
  void fetch(const ir::Op& op, ValueId weight) {
    listing_.ops.push_back(op);
    const AdapterPair& pair = pairs_.at(weight);
    std::vector<ValueId> beside{pair.down};
    beside.insert(beside.end(), pair.up.begin(), pair.up.end());
    for (const ValueId adapter : beside) {
      ir::Op other = op;
      other.out.clear();
      other.in[0] = adapter;
      copies_[{op.out[0], adapter}] =
          listing_.append(std::move(other), {listing_.value(adapter).name + "." + std::string(kCopies)})[0];
    }
  }

  // Adds the adapter's share. Later ops read the sum instead of the op's result. An op that reads the weight
  // in a way of its own, but has room for an adapter among its operands, takes it along.
  void adapt(const ir::Op& op, ValueId weight) {
    if (const size_t room = room_for_adapter(op); room > 0 && op.in[1] == weight) {
      const AdapterPair& pair = pairs_.at(weight);
      HEDDLE_CHECK(pair.up.size() == 1, "'{}' takes one matrix", op.kind());
      ir::Op own = op;
      own.in.resize(std::max(own.in.size(), room + 2), none);
      own.in[room] = pair.down;
      own.in[room + 1] = pair.up[0];
      own.attributes.set("factor", chosen_.scale());
      listing_.ops.push_back(std::move(own));
      return;
    }
    if (!op.def->linear_map || op.in[1] != weight) {
      config_error("lora.targets: '{}' reads {} other than as a linear map, so it can have no adapter", op.kind(),
                   listing_.value(weight).name);
    }
    const ValueId y = op.out[0];
    const std::string name = listing_.value(y).name;
    const AdapterPair& pair = pairs_.at(weight);
    ir::Op frozen = op;
    frozen.out.clear();
    const ValueId base = listing_.append(std::move(frozen), {name + "_frozen"})[0];
    const ValueId low = map(op, op.in[0], pair.down, name + "_low");
    const ValueId scaled = append(op, "scale", {low}, {name + "_scaled"}, {{"factor", chosen_.scale()}})[0];
    ValueId delta = none;
    if (pair.up.size() == 1) {
      delta = map(op, scaled, pair.up[0], name + "_delta");
    } else {
      HEDDLE_CHECK(pair.up.size() == 2, "'{}' is {} matrices", name, pair.up.size());
      const auto halves =
          append(op, "split", {scaled}, {name + "_scaled_0", name + "_scaled_1"}, {{"first", chosen_.rank}});
      const ValueId first = map(op, halves[0], pair.up[0], name + "_delta_0");
      const ValueId second = map(op, halves[1], pair.up[1], name + "_delta_1");
      const int64_t width = listing_.value(first).shape.back().count;
      delta = append(op, "concat", {first, second}, {name + "_delta"}, {{"first", width}, {"second", width}})[0];
    }
    append(op, "add", {base, delta}, {name}, {}, {y});
  }

  // The operand of an op that is an adapter's A, before its B; 0: none.
  static size_t room_for_adapter(const ir::Op& op) {
    const std::vector<std::string_view> names = ir::names_in(op.def->operands);
    const auto at = std::find(names.begin(), names.end(), "adapter_down?");
    return at == names.end() ? 0 : static_cast<size_t>(at - names.begin());
  }

  // Repeats the op's linear map with another weight, whose copies it takes where it has some, and no bias.
  ValueId map(const ir::Op& op, ValueId x, ValueId weight, const std::string& name) {
    ir::Op other = op;
    other.out.clear();
    other.in[0] = x;
    other.in[1] = weight;
    const std::vector<std::string_view> names = ir::names_in(op.def->operands);
    for (size_t i = 0; i < other.in.size(); ++i) {
      if (!names[i].ends_with('?') || other.in[i] == none) continue;
      const bool copies = names[i].substr(0, names[i].size() - 1) == kCopies;
      other.in[i] = copies ? copies_.at({other.in[i], weight}) : none;
    }
    return listing_.append(std::move(other), {name})[0];
  }

  std::vector<ValueId> append(const ir::Op& beside, std::string_view kind, std::vector<ValueId> in,
                              std::vector<std::string> names, ir::Attributes attributes,
                              std::vector<ValueId> out = {}) {
    return listing_.append({.def = &ops::find(kind),
                            .in = std::move(in),
                            .out = std::move(out),
                            .layer = beside.layer,
                            .chunk = beside.chunk,
                            .part = beside.part,
                            .attributes = std::move(attributes)},
                           names);
  }

  model::RankText& text_;
  ir::Listing& listing_;
  const Adapters& chosen_;
  const ir::Coordinates& place_;
  std::map<ValueId, AdapterPair> pairs_;
  std::map<std::pair<ValueId, ValueId>, ValueId> copies_;  // of an adapter, by those of its weight
};

}  // namespace

double Adapters::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

void adapters(std::vector<model::RankText>& texts, const Adapters& chosen, const ir::Coordinates& place,
              int64_t layers) {
  Targets targets(chosen.targets, layers);
  for (model::RankText& text : texts) AdapterWriter(text, chosen, place).write(targets);
  targets.check();
}

}  // namespace heddle::passes
