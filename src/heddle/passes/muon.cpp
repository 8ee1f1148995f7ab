#include "heddle/passes/muon.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::ValueId;

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kSizeOfSteps = 0.2;  // root mean square of AdamW's

// The common properties of matrices that are worked on together; the order is one that all ranks know.
struct Form {
  std::string replica_group, cut_group;  // "": nothing cuts it
  int64_t rows = 0, columns = 0;         // of a matrix, as this rank's weight has it
  int64_t count = 0;                     // matrices of one parameter
  bool by_columns = false;               // how it is cut
  Dtype narrow = Dtype::f32;             // of the weight, in which they travel and are multiplied
  auto operator<=>(const Form&) const = default;
  int64_t elements() const { return rows * columns; }
};

class MuonWriter {
 public:
  MuonWriter(ir::Listing& listing, const UpdateOptions& options, ValueId clip, ValueId hyper)
      : listing_(listing), o_(options), clip_(clip), hyper_(hyper) {}

  void write(const std::vector<MuonTarget>& targets, const std::function<void()>& meanwhile,
             const std::function<void(const MuonTarget&)>& stepped) {
    cut_into_batches(targets);
    if (!batches_.empty()) fetch(batches_[0]);
    meanwhile();
    for (size_t i = 0; i < batches_.size(); ++i) {
      if (i + 1 < batches_.size()) fetch(batches_[i + 1]);
      make_orthogonal(batches_[i]);
      if (i > 0) step(batches_[i - 1], stepped);
    }
    if (!batches_.empty()) step(batches_.back(), stepped);
  }

 private:
  struct Batch {
    Form form;
    std::vector<const MuonTarget*> targets;
    std::string name;
    ValueId stack = ir::none;         // whole matrices, `slots` of them
    int64_t dealt = 0, slots = 0;     // of this rank: dealt to it by the copies; and by the ranks of the cut
    std::vector<ValueId> directions;  // of each target, as its master lies
  };

  int64_t copies(const Form& f) const { return o_.ranks_of(f.replica_group); }
  int64_t cuts(const Form& f) const { return f.cut_group.empty() ? 1 : o_.ranks_of(f.cut_group); }

  Form form_of(const MuonTarget& target) const {
    const model::Parameter& p = *target.parameter;
    const ir::Value& weight = listing_.value(p.value);
    const size_t dims = weight.shape.size();
    Form f;
    f.replica_group = p.replica_group;
    f.narrow = weight.dtype;
    const auto parts = static_cast<int64_t>(p.released.size());
    for (const model::ReleasedPart& part : p.released) {
      HEDDLE_CHECK(part.rows == p.released[0].rows, "'{}' is matrices of unequal heights", p.name);
    }
    f.rows = weight.shape[dims - 2].count / parts;
    f.columns = weight.shape[dims - 1].count;
    f.count = parts * (dims == 3 ? weight.shape[0].count : 1);
    for (const model::Cut& cut : p.cuts) {
      if (cut.dim < static_cast<int>(dims) - 2) continue;  // experts
      const std::string group(ir::name_of(cut.axis));
      if (o_.ranks_of(group) == 1) continue;
      f.cut_group = group;
      f.by_columns = cut.dim == static_cast<int>(dims) - 1;
    }
    return f;
  }

  // Puts as many of a form together as make a bucket of each rank's share.
  void cut_into_batches(const std::vector<MuonTarget>& targets) {
    std::map<Form, std::vector<const MuonTarget*>> by_form;
    for (const MuonTarget& target : targets) by_form[form_of(target)].push_back(&target);
    for (const auto& [form, all] : by_form) {
      const int64_t each = form.count * form.elements() * size_of(form.narrow);
      const bool alone = copies(form) == 1 && cuts(form) == 1;
      const int64_t most =
          alone ? 1 : std::max<int64_t>(1, o_.bucket_bytes * copies(form) / std::max<int64_t>(1, each));
      for (size_t first = 0; first < all.size(); first += static_cast<size_t>(most)) {
        Batch& batch = batches_.emplace_back();
        batch.form = form;
        const size_t last = std::min(all.size(), first + static_cast<size_t>(most));
        batch.targets.assign(all.begin() + static_cast<long>(first), all.begin() + static_cast<long>(last));
        batch.name = fmt::format("muon.{}", batches_.size() - 1);
      }
    }
  }

  std::vector<ValueId> op(std::string_view kind, std::vector<ValueId> in, std::vector<std::string> names,
                          ir::Attributes attributes = {}, std::vector<ValueId> updates = {},
                          std::string group = "") {
    return listing_.append({.def = &ops::find(kind),
                            .in = std::move(in),
                            .updates = std::move(updates),
                            .phase = ir::Phase::end,
                            .group = std::move(group),
                            .attributes = std::move(attributes)},
                           names);
  }

  static ir::Attributes deal(int64_t ranks, int64_t count, int64_t elements, const char* cut) {
    return {{"ranks", ranks}, {"count", count}, {"elements", elements}, {"cut", std::string(cut)}};
  }

  static int64_t share(int64_t all, int64_t ranks) { return (all + ranks - 1) / ranks; }

  void fetch(Batch& b) {
    const Form& f = b.form;
    std::vector<ValueId> parts;
    for (const MuonTarget* target : b.targets) {
      std::vector<ValueId> in{clip_};
      in.insert(in.end(), target->gradients.begin(), target->gradients.end());
      parts.push_back(op("muon_momentum", in, {"ahead." + target->parameter->name},
                         {{"momentum", o_.momentum}, {"dtype", std::string(heddle::name_of(f.narrow))}},
                         {target->momentum})[0]);
    }
    int64_t count = f.count;
    b.dealt = count * std::ssize(parts);
    if (copies(f) > 1) {
      b.dealt = share(b.dealt, copies(f));
      parts = op("gather_matrices", parts, {b.name + ".dealt"}, deal(copies(f), count, f.elements(), "runs"), {},
                 f.replica_group);
      count = b.dealt;
    }
    b.slots = b.dealt;
    if (cuts(f) > 1) {
      b.slots = share(b.dealt, cuts(f));
      parts = op("gather_matrices", parts, {b.name + ".whole"}, deal(cuts(f), count, f.elements(), "blocks"), {},
                 f.cut_group);
    }
    b.stack = parts[0];
  }

  void make_orthogonal(Batch& b) {
    const Form& f = b.form;
    const int64_t blocks = f.by_columns ? cuts(f) : 1, rows = f.by_columns ? f.rows : f.rows * cuts(f),
                  columns = f.columns * blocks;
    const ir::Attributes form{{"count", b.slots}, {"rows", rows}, {"columns", columns}, {"blocks", blocks}};
    ValueId x = op("unit_matrices", {b.stack}, {b.name + ".x"}, form)[0];
    const ValueId offsets =
        op("even_offsets", {}, {b.name + ".offsets"}, {{"groups", b.slots}, {"rows", std::min(rows, columns)}})[0];
    for (int i = 0; i < kIterations; ++i) {
      const ValueId x_each = listing_.matrices(x, b.slots);
      const ValueId square = op("grouped_linear", {x, x_each, offsets}, {b.name + ".a"})[0];
      const ValueId fourth =
          op("grouped_linear", {square, listing_.matrices(square, b.slots), offsets}, {b.name + ".aa"})[0];
      const ValueId factor = op("scaled_sum", {square, fourth}, {b.name + ".b"}, {{"alpha", kB}, {"beta", kC}})[0];
      const ValueId moved = op("grouped_linear_dgrad", {factor, x_each, offsets}, {b.name + ".bx"})[0];
      x = op("scaled_sum", {x, moved}, {b.name + ".x"}, {{"alpha", kA}, {"beta", 1.0}})[0];
    }
    if (rows > columns || blocks > 1) x = op("place_matrices", {x}, {b.name + ".o"}, form)[0];
    send_back(b, x);
  }

  void send_back(Batch& b, ValueId o) {
    const Form& f = b.form;
    const auto targets = std::ssize(b.targets);
    b.directions = {o};
    if (cuts(f) > 1) {
      const bool dealt = copies(f) > 1;
      b.directions = scatter(o, deal(cuts(f), dealt ? b.dealt : f.count, f.elements(), "blocks"),
                             dealt ? 1 : targets, b.name + ".cut", f.cut_group);
    }
    if (copies(f) > 1) {
      b.directions = scatter(b.directions[0], deal(copies(f), f.count, f.elements(), "runs"), targets,
                             b.name + ".run", f.replica_group);
    }
  }

  std::vector<ValueId> scatter(ValueId stack, ir::Attributes attributes, int64_t parts, const std::string& name,
                               const std::string& group) {
    attributes.set("parts", parts);
    return op("scatter_matrices", {stack}, std::vector<std::string>(static_cast<size_t>(parts), name),
              std::move(attributes), {}, group);
  }

  void step(const Batch& b, const std::function<void(const MuonTarget&)>& stepped) {
    const Form& f = b.form;
    const int64_t rows = f.by_columns ? f.rows : f.rows * cuts(f),
                  columns = f.by_columns ? f.columns * cuts(f) : f.columns;
    const double scale = kSizeOfSteps * std::sqrt(static_cast<double>(std::max(rows, columns)));
    for (size_t i = 0; i < b.targets.size(); ++i) {
      const MuonTarget& target = *b.targets[i];
      std::vector<ValueId> updates{target.master};
      if (target.copy != ir::none) updates.push_back(target.copy);
      op("muon_step", {clip_, hyper_, b.directions[i]}, {},
         {{"scale", scale},
          {"decay", target.parameter->decays ? o_.weight_decay : 0.0},
          {"copy", int64_t{target.copy != ir::none}}},
         updates);
      stepped(target);
    }
  }

  ir::Listing& listing_;
  const UpdateOptions& o_;
  ValueId clip_, hyper_;
  std::vector<Batch> batches_;
};

}  // namespace

bool moves_by_muon(const model::Parameter& p, const ir::Listing& listing, const UpdateOptions& options) {
  using Part = model::Parameter::Part;
  return options.rule == OptimizerRule::muon && p.trained && p.part != Part::embedding && p.part != Part::head &&
         model::is_matrix(p, listing);
}

void write_muon(ir::Listing& listing, const UpdateOptions& options, const std::vector<MuonTarget>& targets,
                ValueId clip, ValueId hyper, const std::function<void()>& meanwhile,
                const std::function<void(const MuonTarget&)>& stepped) {
  MuonWriter(listing, options, clip, hyper).write(targets, meanwhile, stepped);
}

}  // namespace heddle::passes
