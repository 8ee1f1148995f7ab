#include "check/diagnosis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "check/difference.h"
#include "heddle/base/error.h"
#include "heddle/ir/print.h"

namespace heddle::check {

using ir::Axis;

namespace {

constexpr double kMostWork = 4e9;  // additions that the search for pairs of faults may take
constexpr int kMostPairs = 24;     // tensors for which pairs are searched

// The place of a stage in the step.
int step_order(const Case& one) {
  switch (one.stage) {
    case Stage::forward: return 0;
    case Stage::norm: return one.name == "loss" ? 1 : 5;
    case Stage::backward: return 2;
    case Stage::local_gradient: return 3;
    case Stage::gradient: return 4;
    case Stage::weight: break;
  }
  return 6;
}

// A line of the program's text, in which long lists have what is looked for alone.
std::string short_of(std::string text, const std::string& kept) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string line;
  bool left_out = false;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(", ", from), text.size());
    const std::string word = text.substr(from, end - from);
    const bool plain =
        word.find(' ') == std::string::npos && text.size() > 200 && word.find(kept) == std::string::npos;
    if (!plain || !left_out) line += (line.empty() ? "" : ", ") + (plain ? std::string("…") : word);
    left_out = plain;
    from = end + 2;
  }
  return line.size() > 400 ? line.substr(0, 400) + " …" : line;
}

}  // namespace

std::string Explanation::name() const {
  std::vector<std::string> names;
  for (const Fault* fault : faults) names.push_back(fault->name);
  return fmt::format("{}", fmt::join(names, " + "));
}

std::string Explanation::sentence() const {
  std::vector<std::string> sentences;
  for (const Fault* fault : faults) sentences.push_back(fault->sentence);
  return fmt::format("{}{}", fmt::join(sentences, "; and "), on_some ? ", on the ranks that differ alone" : "");
}

std::vector<size_t> Findings::unexplained() const {
  std::set<size_t> known(follows.begin(), follows.end());
  for (const Explanation& explanation : explanations)
    known.insert(explanation.cases.begin(), explanation.cases.end());
  std::vector<size_t> rest;
  for (const size_t i : differing) {
    if (!known.contains(i)) rest.push_back(i);
  }
  return rest;
}

Diagnosis::Diagnosis(const Dump& dump) : dump_(dump), reference_(std::make_unique<Reference>(dump)) {
  findings_.ranks = dump.ranks.size();
  findings_.notes = dump.layout.warnings;
  if (const int64_t near = reference_->near_choices(); near > 0)
    findings_.notes.push_back(
        fmt::format("{} choices of experts lie within rounding: what follows from either choice is allowed", near));
  if (const int64_t taken = reference_->taken_choices(); taken > 0)
    findings_.notes.push_back(
        fmt::format("{} choices of experts lie within rounding: the trainer's own are taken", taken));
  add_local_sums();
  compare();
  if (findings_.equal()) return;
  parts_ = std::make_unique<Parts>(*reference_);
  if (!parts_->why_not().empty())
    findings_.notes.push_back("the sums of ranks are not looked into, for Heddle does not run this layout: " +
                              parts_->why_not());
  faults_ = faults_of(*reference_, *parts_);
  mark_what_follows();
  explain();
}

// Gradients before reduction, added up over the axes that they say.
void Diagnosis::add_local_sums() {
  std::vector<std::map<std::string, const Record*>> parts(dump_.ranks.size());
  for (const RankDump& rank : dump_.ranks) {
    for (const Record& record : rank.records) {
      if (record.stage == Stage::local_gradient) parts[static_cast<size_t>(record.rank)][record.name] = &record;
    }
  }
  for (const RankDump& rank : dump_.ranks) {
    for (const Record& record : rank.records) {
      if (record.stage != Stage::local_gradient) continue;
      Record& sum = sums_.emplace_back(record);
      for (const RankDump& other : dump_.ranks) {
        if (&other == &rank) continue;
        bool added = true;
        const bool expert = std::any_of(record.sum_over.begin(), record.sum_over.end(),
                                        [](Axis a) { return a == Axis::ep || a == Axis::etp || a == Axis::edp; });
        for (const Axis axis : expert ? std::vector{Axis::ep, Axis::etp, Axis::edp, Axis::pp}
                                      : std::vector{Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
          const bool over =
              std::find(record.sum_over.begin(), record.sum_over.end(), axis) != record.sum_over.end();
          added = added && (over || other.at.at(axis) == rank.at.at(axis));
        }
        const auto& of_other = parts[static_cast<size_t>(&other - dump_.ranks.data())];
        const auto found = of_other.find(record.name);
        if (!added || found == of_other.end()) continue;
        const Record& part = *found->second;
        if (!(part.slice == record.slice))
          config_error("{}/rank-{:05}/index.json: {}: the part of rank {} is of another slice", dump_.path,
                       record.rank, record.text(), part.rank);
        for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += part.values[i];
      }
    }
  }
}

void Diagnosis::compare() {
  std::map<std::tuple<Stage, std::string, int>, Case> cases;
  bool cancels = false;
  const auto add = [&](const Record& record) {
    if (reference_->cancels(record)) {
      cancels = true;
      return;
    }
    Case& one = cases[{record.stage, record.name, record.microbatch}];
    one.stage = record.stage;
    one.name = record.name;
    one.microbatch = record.microbatch;
    one.records.push_back(&record);
    one.ratios.push_back(compared(record, *reference_).ratio());
    one.order = reference_->of(record).order;
    ++findings_.tensors;
  };
  for (const RankDump& rank : dump_.ranks) {
    for (const Record& record : rank.records) {
      if (record.stage != Stage::local_gradient) add(record);
    }
  }
  for (const Record& sum : sums_) add(sum);
  if (cancels)
    findings_.notes.emplace_back(
        "gradients of routers are not compared: the one gate of a token is divided by itself, so they are rounding "
        "alone");
  // Gradients come from the last parameter to the first.
  std::map<std::string, int> places;
  for (const model::Parameter& p : reference_->lowered().parameters[0])
    places[p.name] = static_cast<int>(places.size());
  for (auto& [key, one] : cases) {
    if (const std::vector<std::string> parameters = reference_->names().parameters_of(one.name);
        !parameters.empty())
      one.order = -places[parameters.front()];
    findings_.all.push_back(std::move(one));
  }
  std::stable_sort(findings_.all.begin(), findings_.all.end(), [](const Case& a, const Case& b) {
    return std::tuple(step_order(a), a.microbatch, a.order) < std::tuple(step_order(b), b.microbatch, b.order);
  });
  for (size_t i = 0; i < findings_.all.size(); ++i) {
    findings_.worst = std::max(findings_.worst, findings_.all[i].worst());
    if (!(findings_.all[i].worst() <= 1)) findings_.differing.push_back(i);
  }
}

// A norm and a weight follow from gradients. Where the dump's own gradients give them, the fault lies before them.
void Diagnosis::mark_what_follows() {
  std::set<std::string> different;
  const Case* wrong_norm = nullptr;
  bool forward = false;
  for (const size_t i : findings_.differing) {
    const Case& one = findings_.all[i];
    forward = forward || one.stage == Stage::forward;
    if (one.stage == Stage::gradient) different.insert(one.name);
    if (one.stage == Stage::norm && one.name == "grad_norm") wrong_norm = &one;
  }
  Weights observed;
  for (const std::string& name : reference_->names().names()) {
    if (const Whole* whole = reference_->find({Stage::gradient, name, -1})) observed[name] = whole->values;
  }
  for (const Case& one : findings_.all) {
    if (one.stage != Stage::gradient) continue;
    for (const Record* record : one.records) {
      const std::vector<int64_t> places = record->slice.places();
      for (size_t i = 0; i < places.size(); ++i)
        observed[one.name][static_cast<size_t>(places[i])] = record->values[i];
    }
  }
  double square = 0;
  for (const auto& [name, gradient] : observed) {
    for (const double x : gradient) square += x * x;
  }
  bool by_norm = false;
  for (const size_t i : findings_.differing) {
    const Case& one = findings_.all[i];
    bool as_said = !different.empty();
    if (one.stage == Stage::norm && one.name == "loss") {
      as_said = forward;
    } else if (one.stage == Stage::norm) {
      for (const Record* record : one.records)
        as_said = as_said && ratio_to({std::sqrt(square)}, *record, *reference_) <= 1;
    } else if (one.stage == Stage::weight) {
      as_said = as_said || wrong_norm != nullptr;
      const Whole* norm = reference_->find({Stage::norm, "grad_norm", -1});
      for (const Record* record : one.records) {
        Numbers gradient = observed.contains(one.name) ? taken(observed.at(one.name), record->slice) : Numbers();
        double length = norm->values[0];
        for (const Record& other : dump_.ranks[static_cast<size_t>(record->rank)].records) {
          if (other.stage == Stage::norm && other.name == "grad_norm") length = other.values[0];
          if (other.stage == Stage::gradient && other.name == one.name && other.slice == record->slice)
            gradient = other.values;
        }
        if (gradient.empty()) continue;
        const auto& [dims, start] = dump_.start.at(one.name);
        const Numbers next =
            updated(taken(start, record->slice), gradient, length, *dump_.layout.optimizer, dims.size() > 1);
        as_said = (different.contains(one.name) || std::isfinite(length)) &&
                  ratio_to(next, *record, *reference_) <= 1 && as_said;
      }
    } else {
      continue;
    }
    if (!as_said) continue;
    findings_.follows.push_back(i);
    by_norm = by_norm || one.stage == Stage::weight;
  }
  if (!by_norm || wrong_norm == nullptr || !different.empty()) return;
  std::set<std::string> lengths;  // ranks may have a norm each
  for (const Record* record : wrong_norm->records) lengths.insert(fmt::format("{:.6g}", record->values[0]));
  findings_.notes.push_back(
      fmt::format("the norm of gradients is {}, where one rank has {:.6g}: the weights follow",
                  fmt::join(lengths, ", "), reference_->of(*wrong_norm->records.front()).values[0]));
}

double Diagnosis::ratio_of(const std::vector<const Fault*>& faults, const Case& one, bool on_some) const {
  double worst = 0;
  for (size_t i = 0; i < one.records.size(); ++i) {
    const Record* record = one.records[i];
    if (on_some && one.ratios[i] <= 1) continue;
    const Seen seen{*record, dump_.ranks[static_cast<size_t>(record->rank)].at, one, *reference_, *parts_};
    std::optional<Numbers> values = predicted(faults, seen);
    // A rank that a fault says nothing of has what the program has.
    const double ratio = values ? ratio_to(*values, *record, *reference_) : compared(*record, *reference_).ratio();
    worst = std::max(worst, std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
    if (worst > 1) break;
  }
  return worst;
}

std::vector<const Fault*> Diagnosis::pair_for(size_t index) const {
  const Case& one = findings_.all[index];
  std::vector<const Fault*> order;  // faults that are known to be there come first
  for (const Explanation& explanation : findings_.explanations)
    order.insert(order.end(), explanation.faults.begin(), explanation.faults.end());
  for (const Fault& fault : faults_) order.push_back(&fault);
  std::vector<const Fault*> best;
  double least = 1;
  for (size_t a = 0; a < order.size(); ++a) {
    for (size_t b = a + 1; b < order.size(); ++b) {
      if (order[a] == order[b]) continue;
      const double ratio = ratio_of({order[a], order[b]}, one);
      if (ratio < least) least = ratio, best = {order[a], order[b]};
      if (least < 0.5) return best;
    }
  }
  return best;
}

void Diagnosis::explain_by_single(std::set<size_t>& open, bool on_some) {
  std::vector<std::vector<size_t>> explained(faults_.size());
  std::vector<double> worst(faults_.size(), 0);
  for (const size_t i : open) {
    for (size_t f = 0; f < faults_.size(); ++f) {
      const double ratio = ratio_of({&faults_[f]}, findings_.all[i], on_some);
      if (ratio > 1) continue;
      explained[f].push_back(i);
      worst[f] = std::max(worst[f], ratio);
    }
  }
  const auto left = [&](const std::vector<size_t>& cases) {
    return std::count_if(cases.begin(), cases.end(), [&](size_t i) { return open.contains(i); });
  };
  while (!open.empty()) {
    size_t best = 0;
    for (size_t f = 1; f < faults_.size(); ++f) {
      if (left(explained[f]) > left(explained[best])) best = f;
    }
    if (left(explained[best]) == 0) break;
    Explanation explanation;
    explanation.faults = {&faults_[best]};
    explanation.worst = worst[best];
    explanation.on_some = on_some;
    for (const size_t i : explained[best]) {
      if (open.contains(i)) explanation.cases.push_back(i);
    }
    for (size_t f = 0; f < faults_.size(); ++f) {
      if (f != best && left(explained[f]) == left(explained[best]) &&
          std::includes(explained[f].begin(), explained[f].end(), explanation.cases.begin(),
                        explanation.cases.end()))
        explanation.alike.push_back(&faults_[f]);
    }
    for (const size_t i : explanation.cases) open.erase(i);
    add_lines(explanation);
    findings_.explanations.push_back(std::move(explanation));
  }
}

void Diagnosis::explain() {
  const std::set<size_t> follows(findings_.follows.begin(), findings_.follows.end());
  std::set<size_t> open;
  for (const size_t i : findings_.differing) {
    if (!follows.contains(i)) open.insert(i);
  }
  explain_by_single(open, false);
  explain_by_single(open, true);
  // Two at once, for what no single fault explains. Behind a wrong forward pass nothing is as the program has it.
  int tried = 0;
  double work = 0;
  const bool forward = findings_.first()->stage == Stage::forward;
  while (!open.empty() && tried < kMostPairs && work < kMostWork) {
    const size_t i = *open.begin();
    open.erase(open.begin());
    const Case& one = findings_.all[i];
    if (forward && i != findings_.differing.front()) break;
    ++tried;
    double elements = 0;
    for (const Record* record : one.records) elements += static_cast<double>(record->slice.whole());
    work += elements * static_cast<double>(faults_.size() * faults_.size()) / 2;
    const std::vector<const Fault*> pair = pair_for(i);
    if (pair.empty()) continue;
    Explanation explanation;
    explanation.faults = pair;
    explanation.cases = {i};
    for (const size_t other : std::set<size_t>(open)) {
      if (ratio_of(pair, findings_.all[other]) > 1) continue;
      explanation.cases.push_back(other);
      open.erase(other);
    }
    for (const size_t c : explanation.cases)
      explanation.worst = std::max(explanation.worst, ratio_of(pair, findings_.all[c]));
    add_lines(explanation);
    findings_.explanations.push_back(std::move(explanation));
  }
  if (!open.empty() && !forward && (tried >= kMostPairs || work >= kMostWork))
    findings_.notes.push_back("pairs of faults are searched for some of the tensors alone: there are many");
  std::stable_sort(findings_.explanations.begin(), findings_.explanations.end(),
                   [](const Explanation& a, const Explanation& b) { return a.cases.size() > b.cases.size(); });
}

void Diagnosis::add_lines(Explanation& explanation) const {
  explanation.line = line_of(findings_.all[explanation.cases.front()]);
  if (explanation.line.empty()) return;
  explanation.mutated = explanation.line;
  for (const Fault* fault : explanation.faults) {
    if (fault->text) explanation.mutated = fault->text(explanation.mutated);
  }
}

// The op of the layout's program that makes a tensor what it is: the one that reduces it, if there is one.
std::string Diagnosis::line_of(const Case& one) const {
  const plan::Lowered& lowered = parts_->lowered() != nullptr ? *parts_->lowered() : reference_->lowered();
  std::string found, kept = one.name;
  const auto search = [&](const auto& is_it, bool reduces) {
    for (const ir::Listing& listing : lowered.program.listings) {
      for (const ir::Op& op : listing.ops) {
        if (found.empty() && (!reduces || op.def->collective) && is_it(listing, op))
          found = short_of(ir::text_of(listing, op), kept);
      }
    }
  };
  const auto has = [](const ir::Listing& listing, const std::vector<ir::ValueId>& ids, const auto& test) {
    return std::any_of(ids.begin(), ids.end(), [&](ir::ValueId id) {
      return id != ir::none && test(listing.value(listing.base(id)).name);
    });
  };
  const auto writes = [&](const std::string& name) {
    return [&, name](const ir::Listing& listing, const ir::Op& op) {
      return has(listing, op.out, [&](const std::string& v) { return v == name; });
    };
  };
  const Module* module = reference_->module(one.name);
  if (one.stage == Stage::forward && module != nullptr) {
    search(writes(module->value), false);
  } else if (one.stage == Stage::backward && module != nullptr) {
    for (const ir::Listing& listing : lowered.program.listings) {
      const std::string gradient = gradient_of(listing, module->value);
      if (!gradient.empty()) search(writes(gradient), false);
    }
  } else if (one.stage == Stage::norm) {
    const bool loss = one.name == "loss";
    search([&](const ir::Listing&, const ir::Op& op) { return loss ? op.def->is_loss : op.kind() == "grad_norm"; },
           false);
  } else {
    const std::vector<std::string> parameters = reference_->names().parameters_of(one.name);
    const std::string parameter = kept = parameters.empty() ? one.name : parameters.front();
    const auto touches = [&](const ir::Listing& listing, const ir::Op& op) {
      const auto test = [&](const std::string& v) {
        return v.starts_with("grad.") && v.find(parameter) != std::string::npos;
      };
      return has(listing, op.in, test) || has(listing, op.updates, test) || has(listing, op.out, test);
    };
    const auto updates = [&](const ir::Listing& listing, const ir::Op& op) {
      return op.phase == ir::Phase::end && has(listing, op.updates, [&](const std::string& v) {
               return v.find(parameter) != std::string::npos && !v.starts_with("grad.");
             });
    };
    if (one.stage == Stage::weight) search(updates, false);
    if (one.stage == Stage::gradient) search(touches, true);
    if (found.empty()) search(touches, false);
  }
  return found;
}

std::string Diagnosis::ranks_of(const Case& one) const {
  std::set<int> different, all;
  for (size_t i = 0; i < one.records.size(); ++i) {
    all.insert(one.records[i]->rank);
    if (!(one.ratios[i] <= 1)) different.insert(one.records[i]->rank);
  }
  if (different == all)
    return all.size() == 1 ? fmt::format("rank {}", *all.begin())
                           : fmt::format("all {} ranks that hold it", all.size());
  std::string where;
  for (int a = 0; a < ir::kAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    std::set<int> inside, outside;
    for (const int rank : all)
      (different.contains(rank) ? inside : outside).insert(dump_.ranks[static_cast<size_t>(rank)].at.at(axis));
    std::vector<int> common;
    std::set_intersection(inside.begin(), inside.end(), outside.begin(), outside.end(), std::back_inserter(common));
    if (common.empty() && where.empty())
      where = fmt::format(" ({} {})", ir::name_of(axis), fmt::join(inside, ", "));
  }
  return fmt::format("rank{} {}{}", different.size() == 1 ? "" : "s", fmt::join(different, ", "), where);
}

std::string Diagnosis::group_of(const Case& one) const {
  std::vector<std::string> axes;
  for (const auto& [axis, degree] : std::vector<std::pair<Axis, int>>{{Axis::tp, dump_.layout.mesh.tp},
                                                                      {Axis::cp, dump_.layout.mesh.cp},
                                                                      {Axis::dp, dump_.layout.mesh.dp},
                                                                      {Axis::pp, dump_.layout.mesh.pp}}) {
    bool apart = false;
    for (const Record* a : one.records) {
      for (const Record* b : one.records) {
        if (degree == 1 || a->rank >= b->rank || !(a->slice == b->slice)) continue;
        bool others = true;
        for (const Axis other : {Axis::tp, Axis::cp, Axis::dp, Axis::pp})
          others = others && (other == axis || dump_.ranks[static_cast<size_t>(a->rank)].at.at(other) ==
                                                   dump_.ranks[static_cast<size_t>(b->rank)].at.at(other));
        const bool same_rows = one.microbatch < 0 || axis != Axis::dp;
        apart = apart || (others && same_rows && ratio_to(b->values, *a, *reference_) > 1);
      }
    }
    if (apart) axes.emplace_back(ir::name_of(axis));
  }
  return fmt::format("{}", fmt::join(axes, ", "));
}

}  // namespace heddle::check
