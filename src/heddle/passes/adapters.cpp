#include "heddle/passes/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "heddle/base/error.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::ValueId;
using model::Parameter;

constexpr std::string_view kWeight = ".weight", kAll = "all";

// The parts of a model whose linear maps may have adapters; "" for the others.
std::string_view word_of(Parameter::Part part) {
  switch (part) {
    case Parameter::Part::attention: return "attention";
    case Parameter::Part::mlp: return "mlp";
    case Parameter::Part::shared_experts: return "shared";
    case Parameter::Part::experts: return "experts";
    default: return "";
  }
}

// "a.b.q_proj" of "a.b.q_proj.weight".
std::string stem_of(const std::string& name) {
  HEDDLE_CHECK(name.ends_with(kWeight), "'{}' is no weight", name);
  return name.substr(0, name.size() - kWeight.size());
}

std::string module_of(const std::string& name) {
  const std::string stem = stem_of(name);
  return stem.substr(stem.rfind('.') + 1);
}

std::vector<std::string> words_of(const std::string& targets) {
  std::vector<std::string> words(1);
  for (const char c : targets) {
    if (c == ',') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  return words;
}

class Targets {
 public:
  Targets(const std::string& targets, int64_t layers) : words_(words_of(targets)), layers_(layers) {}

  /// Whether a parameter of this listing is among them.
  bool has(const Parameter& p, const ir::Listing& listing) {
    const std::string part(word_of(p.part));
    if (part.empty() || p.layer < 0 || p.layer >= layers_ || !model::is_matrix(p, listing)) return false;
    known_.insert({part, std::string(kAll)});
    size_t named = 0;
    bool whole = false;
    for (const model::ReleasedPart& released : p.released) known_.insert(module_of(released.name));
    for (const std::string& word : words_) {
      const auto is_word = [&](const model::ReleasedPart& released) { return module_of(released.name) == word; };
      whole = whole || word == kAll || word == part;
      named += static_cast<size_t>(std::count_if(p.released.begin(), p.released.end(), is_word));
    }
    if (whole || named == 0) return whole;
    if (named < p.released.size()) {
      config_error("lora.targets: {} and {} are one product: both are named, or none",
                   module_of(p.released.front().name), module_of(p.released.back().name));
    }
    return true;
  }

  /// After all parameters were asked for.
  void check() const {
    const std::vector<std::string> accepted(known_.begin(), known_.end());
    for (const std::string& word : words_) {
      if (known_.contains(word)) continue;
      config_error("lora.targets: the model has no '{}', accepted: {}{}", word, fmt::join(accepted, ", "),
                   did_you_mean(word, accepted));
    }
  }

 private:
  std::vector<std::string> words_;
  int64_t layers_;
  std::set<std::string> known_;
};

/// What stands beside a weight: A, and B of each released matrix.
struct Pair {
  ValueId down = none;
  std::vector<ValueId> up;
};

class Writer {
 public:
  Writer(model::RankText& text, const Adapters& chosen, const ir::Coordinates& place)
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

  Pair add_pair(const Parameter& base) {
    const ir::Shape shape = listing_.value(base.value).shape;  // [E]? N K, of this rank
    const auto columns = static_cast<int>(shape.size()) - 1, rows = columns - 1;
    const auto parts = std::ssize(base.released);
    const std::string prefix = base.name.substr(0, base.name.rfind('.', base.name.size() - kWeight.size() - 1) + 1);
    Pair pair;

    Parameter down = without_cut(base, rows);
    down.name = stem_of(base.name) + std::string(kAdapterDown);
    int64_t read = shape[static_cast<size_t>(columns)].count;
    for (const model::Cut& cut : down.cuts) {
      if (cut.dim == columns) read *= place_.of(cut.axis);
    }
    // The variance of Kaiming's uniform distribution with a = √5, from which PEFT's A begins.
    down.start = Parameter::Start::normal;
    down.deviation = 1 / std::sqrt(3.0 * static_cast<double>(read));
    down.released.clear();
    for (int64_t i = 0; i < parts; ++i) {
      const std::string name = stem_of(base.released[static_cast<size_t>(i)].name) + std::string(kAdapterDown);
      down.released.push_back({name, i * chosen_.rank, chosen_.rank});
    }
    ir::Shape down_shape = shape;
    down_shape[static_cast<size_t>(rows)].count = parts * chosen_.rank;
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
      up_shape[static_cast<size_t>(rows)].count /= parts;
      up_shape[static_cast<size_t>(columns)].count = chosen_.rank;
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
        p.copies = "stage";
      } else {
        HEDDLE_CHECK(cut.axis == ir::Axis::etp, "'{}' is cut by {}", base.name, name_of(cut.axis));
        p.copies = "expert";
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

  // What follows reads the sum in the place of the op's result.
  void adapt(const ir::Op& op, ValueId weight) {
    if (!op.def->linear_map || op.in[1] != weight) {
      config_error(
          "lora.targets: '{}' reads {} otherwise than as a linear map, so no adapter stands beside it; a "
          "cache of tokens does, a merged model or --no-cache doesn't",
          op.kind(), listing_.value(weight).name);
    }
    const ValueId y = op.out[0];
    const std::string name = listing_.value(y).name;
    const Pair& pair = pairs_.at(weight);
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

  // The same linear map with another weight, and no bias.
  ValueId map(const ir::Op& op, ValueId x, ValueId weight, const std::string& name) {
    ir::Op other = op;
    other.out.clear();
    other.in[0] = x;
    other.in[1] = weight;
    const std::vector<std::string_view> names = ir::names_in(op.def->operands);
    for (size_t i = 0; i < other.in.size(); ++i) {
      if (names[i].ends_with('?')) other.in[i] = none;
    }
    return listing_.append(std::move(other), {name})[0];
  }

  std::vector<ValueId> append(const ir::Op& beside, std::string_view kind, std::vector<ValueId> in,
                              std::vector<std::string> names, ir::Attributes attributes,
                              std::vector<ValueId> out = {}) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.out = std::move(out);
    op.layer = beside.layer;
    op.chunk = beside.chunk;
    op.part = beside.part;
    op.attributes = std::move(attributes);
    return listing_.append(std::move(op), names);
  }

  model::RankText& text_;
  ir::Listing& listing_;
  const Adapters& chosen_;
  const ir::Coordinates& place_;
  std::map<ValueId, Pair> pairs_;
};

}  // namespace

double Adapters::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

void adapters(std::vector<model::RankText>& texts, const Adapters& chosen, const ir::Coordinates& place,
              int64_t layers) {
  Targets targets(chosen.targets, layers);
  for (model::RankText& text : texts) Writer(text, chosen, place).write(targets);
  targets.check();
}

}  // namespace heddle::passes
