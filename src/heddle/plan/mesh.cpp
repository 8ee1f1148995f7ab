#include "heddle/plan/mesh.h"

#include <algorithm>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/plan/divisors.h"

namespace heddle::plan {

namespace {

using ir::Axis;

std::vector<Axis> fold_named(const std::string& order, const std::vector<Axis>& wanted, const char* key) {
  std::vector<Axis> fold;
  std::string accepted;
  for (size_t at = 0; at <= order.size();) {
    const size_t end = std::min(order.find('-', at), order.size());
    for (const Axis axis : wanted) {
      if (order.substr(at, end - at) == ir::name_of(axis)) fold.push_back(axis);
    }
    at = end + 1;
  }
  for (const Axis axis : wanted) accepted += fmt::format("{}{}", accepted.empty() ? "" : "-", ir::name_of(axis));
  std::vector<Axis> sorted = fold, all = wanted;
  std::sort(sorted.begin(), sorted.end());
  std::sort(all.begin(), all.end());
  const auto dashes = std::count(order.begin(), order.end(), '-');
  if (sorted != all || static_cast<size_t>(dashes) + 1 != wanted.size()) {
    config_error("mesh.{}: '{}' is not an order of the axes {}", key, order, accepted);
  }
  return fold;
}

}  // namespace

std::string text_of(const Degrees& degrees) {
  if (degrees.ranks() == 1) return "1 rank";
  std::string cut, experts;
  for (const auto& [name, degree] :
       {std::pair{"tp", degrees.tp}, {"cp", degrees.cp}, {"dp", degrees.dp}, {"pp", degrees.pp}}) {
    if (degree > 1) cut += fmt::format("{}{} {}", cut.empty() ? "" : " × ", name, degree);
  }
  for (const auto& [name, degree] : {std::pair{"ep", degrees.ep}, {"etp", degrees.etp}}) {
    if (degree > 1) experts += fmt::format("{}{} {}", experts.empty() ? ", " : " × ", name, degree);
  }
  return fmt::format("{} ranks: {}{}", degrees.ranks(), cut, experts);
}

Mesh::Mesh(const Degrees& degrees) : degrees_(degrees) {
  const std::array<int, ir::kAxes> degree{degrees.tp, degrees.cp,  degrees.dp, degrees.pp,
                                          degrees.ep, degrees.etp, 1};
  for (int a = 0; a < ir::kAxes; ++a) {
    if (degree[a] < 1) {
      config_error("mesh.{} is {}, must be at least 1", ir::name_of(static_cast<Axis>(a)), degree[a]);
    }
  }
  if (degrees.stage_ranks() % (degrees.ep * degrees.etp) != 0) {
    const int64_t asked = int64_t{degrees.ep} * degrees.etp, there = degrees.stage_ranks();
    const int64_t least = std::lcm(asked, int64_t{degrees.tp} * degrees.cp) * degrees.pp;
    config_error(
        "mesh: ep × etp ({} × {}) does not divide tp × cp × dp ({} × {} × {} = {}); it goes with mesh.ranks = {}, "
        "and "
        "{} ranks a stage with a product of {}",
        degrees.ep, degrees.etp, degrees.tp, degrees.cp, degrees.dp, there, least, there, divisors_text(there));
  }
  const std::vector<Axis> fold = fold_named(degrees.order, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}, "order");
  const std::vector<Axis> experts =
      fold_named(degrees.expert_order, {Axis::etp, Axis::ep, Axis::edp}, "expert_order");
  const auto unfold = [](ir::Coordinates& c, const std::vector<Axis>& axes, int index) {
    for (const Axis axis : axes) {
      c.index[static_cast<size_t>(axis)] = index % c.of(axis);
      index /= c.of(axis);
    }
  };
  std::vector<int> seen(static_cast<size_t>(degrees.pp), 0);  // ranks of each stage so far
  for (int r = 0; r < degrees.ranks(); ++r) {
    ir::Coordinates c;
    c.degree = degree;
    c.degree[static_cast<size_t>(Axis::edp)] = degrees.edp();
    unfold(c, fold, r);
    unfold(c, experts, seen[static_cast<size_t>(c.at(Axis::pp))]++);
    at_.push_back(c);
  }
}

const std::vector<std::string>& Mesh::group_names() {
  static const std::vector<std::string> names{"tp",      "cp",     "pp",    "etp",      "edp",   "expert",
                                              "experts", "copies", "dense", "sequence", "stage", "world"};
  return names;
}

std::vector<int> Mesh::by_runs(const std::string& name, size_t at, int rank) const {
  std::vector<int> all = group(name.substr(0, at), rank);
  std::sort(all.begin(), all.end());  // neighbours are so by number, in every order of the axes
  const size_t number = name.find_first_of("0123456789", at);
  HEDDLE_CHECK(number != std::string::npos, "no mesh group '{}'", name);
  const std::string_view how = std::string_view(name).substr(at + 1, number - at - 1);
  const auto length = static_cast<size_t>(std::stoi(name.substr(number)));
  HEDDLE_CHECK(length > 0 && all.size() % length == 0, "'{}' cuts {} ranks", name, all.size());
  const auto own = static_cast<size_t>(std::find(all.begin(), all.end(), rank) - all.begin());
  std::vector<int> members;
  for (size_t place = 0; place < length; ++place) {
    for (size_t run = 0; run < all.size() / length; ++run) {
      if (how == "in" && run != own / length) continue;
      if (how == "across" && place != own % length) continue;
      members.push_back(all[run * length + place]);
    }
  }
  HEDDLE_CHECK(how == "in" || how == "across" || how == "by", "no mesh group '{}'", name);
  return members;
}

std::vector<int> Mesh::group(const std::string& name, int rank) const {
  if (const size_t at = name.find('@'); at != std::string::npos) {
    std::vector<int> pipeline_ranks, members;
    for (size_t from = at; from != std::string::npos; from = name.find('+', from + 1)) {
      pipeline_ranks.push_back(std::stoi(name.substr(from + 1)));
    }
    if (std::find(pipeline_ranks.begin(), pipeline_ranks.end(), this->at(rank).at(Axis::pp)) ==
        pipeline_ranks.end()) {
      return {};
    }
    const std::vector<int> line = group("pp", rank);
    for (const int p : pipeline_ranks) {
      const std::vector<int> part = group(name.substr(0, at), line.at(static_cast<size_t>(p)));
      members.insert(members.end(), part.begin(), part.end());
    }
    return members;
  }
  if (const size_t at = name.find('_'); at != std::string::npos) return by_runs(name, at, rank);
  // The axes on which members may differ, slowest first; all others of that layout are those of `rank`.
  struct Kind {
    const char* name;
    std::vector<Axis> free, fixed;
  };
  static const std::vector<Kind> kinds{
      {"tp", {Axis::tp}, {Axis::cp, Axis::dp, Axis::pp}},
      {"cp", {Axis::cp}, {Axis::tp, Axis::dp, Axis::pp}},
      {"pp", {Axis::pp}, {Axis::tp, Axis::cp, Axis::dp}},
      {"etp", {Axis::etp}, {Axis::ep, Axis::edp, Axis::pp}},
      {"edp", {Axis::edp}, {Axis::etp, Axis::ep, Axis::pp}},
      {"expert", {Axis::edp, Axis::etp}, {Axis::ep, Axis::pp}},
      {"experts", {Axis::ep, Axis::etp}, {Axis::edp, Axis::pp}},
      {"copies", {Axis::ep, Axis::etp}, {Axis::edp, Axis::pp}},  // of experts: beside the exchange, never behind it
      {"dense", {Axis::dp, Axis::cp}, {Axis::tp, Axis::pp}},
      {"sequence", {Axis::cp, Axis::tp}, {Axis::dp, Axis::pp}},
      {"stage", {}, {Axis::pp}},
      {"world", {}, {}},
  };
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == name; });
  HEDDLE_CHECK(kind != kinds.end(), "no mesh group '{}'", name);
  std::vector<int> members;
  for (int r = 0; r < ranks(); ++r) {
    bool in = true;
    for (const Axis axis : kind->fixed) in = in && at(r).at(axis) == at(rank).at(axis);
    if (in) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    for (const Axis axis : kind->free) {
      if (at(a).at(axis) != at(b).at(axis)) return at(a).at(axis) < at(b).at(axis);
    }
    return false;
  });
  return members;
}

}  // namespace heddle::plan
