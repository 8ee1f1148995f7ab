// The norm of all gradients, put together from the squares of what each rank holds.
#include <algorithm>
#include <cmath>

#include "check/fault_rows.h"

namespace heddle::check {

using ir::Axis;

namespace {

bool is_cut_by(const model::Parameter& p, Axis axis) {
  if (axis == Axis::pp) return !p.on_several_stages;
  return std::any_of(p.cuts.begin(), p.cuts.end(), [&](const model::Cut& cut) { return cut.axis == axis; });
}

std::vector<Axis> fold_of(const model::Parameter& p) {
  if (p.experts > 0) return {Axis::ep, Axis::etp, Axis::edp, Axis::pp};
  return {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
}

// The square that a rank finds: `weight` says how often a tensor counts, and `not_over` which ranks' slices are
// missing.
double square(const Seen& seen, std::optional<Axis> not_over,
              const std::function<double(const model::Parameter&)>& weight) {
  double sum = 0;
  const plan::Mesh& mesh = seen.parts.mesh();
  for (int rank = 0; rank < mesh.ranks() && !seen.parts.squares().empty(); ++rank) {
    const ir::Coordinates& at = mesh.at(rank);
    for (const auto& [name, square] : seen.parts.squares()[static_cast<size_t>(rank)]) {
      const model::Parameter& p = *seen.parts.parameter(name);
      bool counts = true;
      for (const Axis axis : fold_of(p)) {
        const bool same = at.at(axis) == seen.here.at(axis);
        counts = counts && (is_cut_by(p, axis) ? axis != not_over || same : same || axis == Axis::pp);
      }
      if (p.on_several_stages && counts) {  // once, on the first stage that has it
        bool first = true;
        for (int other = 0; other < rank; ++other)
          first = first && !(mesh.at(other).at(Axis::tp) == at.at(Axis::tp) &&
                             mesh.at(other).at(Axis::cp) == at.at(Axis::cp) &&
                             mesh.at(other).at(Axis::dp) == at.at(Axis::dp) &&
                             seen.parts.squares()[static_cast<size_t>(other)].contains(name));
        counts = first;
      }
      if (counts) sum += weight(p) * square;
    }
  }
  return sum;
}

}  // namespace

void norm_faults(const Setting& s, std::vector<Fault>& all) {
  const auto norm = [&](std::string name, std::string sentence, std::optional<Axis> not_over,
                        std::function<double(const model::Parameter&)> weight) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .change = [not_over, weight = std::move(weight)](const Numbers&,
                                                          const Seen& seen) -> std::optional<Numbers> {
           if (seen.all.stage != Stage::norm || seen.all.name != "grad_norm" || seen.parts.squares().empty())
             return std::nullopt;
           return Numbers{std::sqrt(square(seen, not_over, weight))};
         },
         .text = [](const std::string& line) { return line + "  {counts some tensors another number of times}"; }});
  };
  const auto once = [](const model::Parameter&) { return 1.0; };
  for (const auto& [axis, degree] : long_axes(s.layout)) {
    const std::string word(ir::name_of(axis));
    norm("norm.not_over." + word,
         fmt::format("the squares are not summed over {}: each rank has the norm of its own slices", word), axis,
         once);
    norm("norm.copies." + word, fmt::format("tensors that {} does not cut count once a rank of {}", word, word), {},
         [axis = axis, degree = degree](const model::Parameter& p) {
           const std::vector<Axis> fold = fold_of(p);
           return std::find(fold.begin(), fold.end(), axis) != fold.end() && !is_cut_by(p, axis) ? degree : 1.0;
         });
    norm("norm.cut_copies." + word, fmt::format("tensors that {} cuts count once a rank of {}", word, word), {},
         [axis = axis, degree = degree](const model::Parameter& p) {
           return is_cut_by(p, axis) && axis != Axis::pp ? degree : 1.0;
         });
    if (s.reference.model().n_routed_experts > 0)
      norm("norm.experts." + word,
           fmt::format("the experts' squares count {} times, as often as {} has ranks", degree, word), {},
           [degree = degree](const model::Parameter& p) { return p.experts > 0 ? degree : 1.0; });
    norm("norm.dense." + word,
         fmt::format("all squares but the experts' count {} times, as often as {} has ranks", degree, word), {},
         [degree = degree](const model::Parameter& p) { return p.experts > 0 ? 1.0 : degree; });
  }
  norm("norm.no_experts", "the experts are missing in the norm", {},
       [](const model::Parameter& p) { return p.experts > 0 ? 0.0 : 1.0; });
  norm("norm.experts_alone", "the norm is of the experts alone", {},
       [](const model::Parameter& p) { return p.experts > 0 ? 1.0 : 0.0; });
  norm("norm.no_copies", "tensors that tp does not cut are missing in the norm", {},
       [](const model::Parameter& p) { return p.experts > 0 || is_cut_by(p, Axis::tp) ? 1.0 : 0.0; });
  norm("norm.no_norms", "the weights of norms are missing in the norm", {},
       [](const model::Parameter& p) { return p.part == model::Parameter::Part::norm ? 0.0 : 1.0; });
  norm("norm.router_missing", "the routers are missing in the norm", {},
       [](const model::Parameter& p) { return p.part == model::Parameter::Part::router ? 0.0 : 1.0; });
  norm("norm.ends_twice", "embedding and head count twice", {}, [](const model::Parameter& p) {
    return p.part == model::Parameter::Part::embedding || p.part == model::Parameter::Part::head ? 2.0 : 1.0;
  });
  const auto root = [&](std::string name, std::string sentence, std::function<double(double)> of) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .change = [of = std::move(of)](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
           if (seen.all.name != "grad_norm") return std::nullopt;
           return Numbers{of(whole[0])};
         },
         .text = [](const std::string& line) { return line + "  {another root}"; }});
  };
  root("norm.square", "it is the square of the norm: no root is taken", [](double x) { return x * x; });
  for (const auto& [axis, degree] : long_axes(s.layout)) {
    const std::string word(ir::name_of(axis));
    root("norm.root_times." + word,
         fmt::format("all squares count {} times, as often as {} has ranks", degree, word),
         [degree = degree](double x) { return x * std::sqrt(degree); });
    root("norm.root_divided." + word, fmt::format("all squares are divided by the degree of {}", word),
         [degree = degree](double x) { return x / std::sqrt(degree); });
  }
}

}  // namespace heddle::check
