#include <algorithm>
#include <cmath>

#include "check/fault_rows.h"
#include "heddle/model/loss_scale.h"

namespace heddle::check {

using ir::Axis;

namespace {

std::string replaced(std::string line, const std::string& group) {
  const size_t at = line.find(" over ");
  if (at == std::string::npos) return line + "  over " + group;
  const size_t from = at + 6, end = std::min(line.find_first_of(" \n", from), line.size());
  return line.replace(from, end - from, group);
}

// Labels that count, of a data rank, or of one of its microbatches, as a share of their mean.
double share_of(const Setting& s, int data_rank, int microbatch) {
  const auto each = static_cast<size_t>(s.layout.sequences);
  const std::vector<double>& labels = s.reference.labels();
  double all = 0, own = 0;
  int units = 0;
  for (int m = 0; m < s.layout.microbatches; ++m) {
    for (int d = 0; d < s.layout.mesh.dp; ++d) {
      double count = 0;
      for (size_t i = 0; i < each; ++i) count += labels[static_cast<size_t>(m * s.layout.mesh.dp + d) * each + i];
      all += count;
      ++units;
      const bool is_own = (data_rank < 0 || d == data_rank) && (microbatch < 0 || m == microbatch);
      if (is_own) own += count;
    }
  }
  const double own_units = (data_rank < 0 ? s.layout.mesh.dp : 1) * (microbatch < 0 ? s.layout.microbatches : 1);
  return own > 0 ? (own / own_units) / (all / units) : 1;
}

// This is that share of a rank of cp, which has some positions of each sequence of a data rank.
double context_share(const Setting& s, const ir::Coordinates& at) {
  const train::Sequences& sequences = s.reference.sequences();
  const int cp = s.layout.mesh.cp, dp = s.layout.mesh.dp;
  const int64_t length = s.layout.sequence_length;
  double own = 0, all = 0;
  for (size_t q = 0; q < sequences.size(); ++q) {
    const int d = static_cast<int>(q / static_cast<size_t>(s.layout.sequences)) % dp;
    for (int64_t j = 0; j < length; ++j) {
      const double counts = sequences.is_target(q, static_cast<size_t>(j) + 1) ? 1 : 0;
      all += counts;
      if (d != at.at(Axis::dp)) continue;
      for (int64_t k = 0; k < length / cp; ++k) {
        if (ir::position(k, length, at.at(Axis::cp), cp) == j) own += counts;
      }
    }
  }
  return own > 0 ? own * cp * dp / all : 1;
}

}  // namespace

std::vector<std::pair<Axis, int>> long_axes(const Layout& layout) {
  const plan::Degrees& m = layout.mesh;
  std::vector<std::pair<Axis, int>> all;
  for (const auto& [axis, degree] : std::initializer_list<std::pair<Axis, int>>{{Axis::tp, m.tp},
                                                                                {Axis::cp, m.cp},
                                                                                {Axis::dp, m.dp},
                                                                                {Axis::pp, m.pp},
                                                                                {Axis::ep, m.ep},
                                                                                {Axis::etp, m.etp},
                                                                                {Axis::edp, m.edp()}}) {
    const bool spread = m.ep * m.etp > 1 || axis != Axis::edp;
    if (degree > 1 && spread) all.emplace_back(axis, degree);
  }
  return all;
}

void sum_faults(const Setting& s, std::vector<Fault>& all) {
  const auto axes = long_axes(s.layout);
  for (const auto& [axis, degree] : axes) {
    const std::string name(ir::name_of(axis));
    all.push_back(
        {.name = "not_summed." + name,
         .sentence = "it is not summed over " + name,
         .factor = [axis = axis](const Seen& seen,
                                 const Part& part) { return part.at.at(axis) == seen.here.at(axis) ? 1.0 : 0.0; },
         .text = [name](const std::string& line) { return replaced(line, "all but " + name); }});
  }
  const auto own_mean = [&](std::string name, std::vector<Axis> over) {
    double degree = 1;
    for (const Axis axis : over) {
      for (const auto& [other, length] : axes) degree *= other == axis ? length : 1;
    }
    if (degree == 1) return;
    all.push_back(
        {.name = "own_mean." + name,
         .sentence = fmt::format("it is not reduced over {0}: each rank of {0} has the mean of its own", name),
         .factor =
             [over, degree, setting = s](const Seen& seen, const Part& part) {
               for (const Axis axis : over) {
                 if (part.at.at(axis) != seen.here.at(axis)) return 0.0;
               }
               const bool of_data = over.front() == Axis::dp && setting.layout.loss == LossMean::tokens;
               return degree / (of_data ? share_of(setting, seen.here.at(Axis::dp), -1) : 1);
             },
         .text = [name](const std::string& line) { return replaced(line, "all but " + name); }});
  };
  own_mean("dp", {Axis::dp});
  own_mean("cp", {Axis::cp});
  own_mean("edp", {Axis::edp});
  if (s.layout.mesh.dp > 1 && s.layout.mesh.cp > 1) own_mean("dp × cp", {Axis::dp, Axis::cp});
  for (const std::string& group : plan::Mesh::group_names()) {
    const plan::Mesh& mesh = s.parts.mesh();
    if (group == "expert" || group == "copies" || mesh.group(group, 0).size() == static_cast<size_t>(mesh.ranks()))
      continue;
    all.push_back({.name = "summed_over." + group,
                   .sentence = mesh.group(group, 0).size() == 1
                                   ? std::string("it is summed over no other rank")
                                   : "it is summed over the ranks of " + group + " alone",
                   .factor =
                       [group, &mesh](const Seen& seen, const Part& part) {
                         int rank = 0;
                         while (!(mesh.at(rank) == seen.here)) ++rank;
                         const std::vector<int> members = mesh.group(group, rank);
                         return std::find(members.begin(), members.end(), part.rank) == members.end() ? 0.0 : 1.0;
                       },
                   .text = [group](const std::string& line) { return replaced(line, group); }});
  }
  for (const auto& [axis, degree] : axes) {  // ranks of an axis that cuts the tensor: their slices are no addends
    const std::string name(ir::name_of(axis));
    all.push_back(
        {.name = "slices_summed." + name,
         .sentence = fmt::format("the slices of the ranks of {} are added up, though {} cuts it", name, name),
         .change = [axis = axis](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
           Numbers sum;
           bool cut = false;
           for (const Record* other : seen.all.records) {
             const ir::Coordinates& at = seen.reference.dump().ranks[static_cast<size_t>(other->rank)].at;
             const bool expert = axis == Axis::ep || axis == Axis::etp || axis == Axis::edp;
             bool same = true;
             for (const Axis fixed : expert ? std::vector{Axis::pp, Axis::ep, Axis::etp, Axis::edp}
                                            : std::vector{Axis::pp, Axis::tp, Axis::cp, Axis::dp})
               same = same && (fixed == axis || at.at(fixed) == seen.here.at(fixed));
             if (!same) continue;
             cut = cut || !(other->slice == seen.record.slice);
             const Numbers part = taken(whole, other->slice);
             if (sum.empty()) sum.assign(part.size(), 0.0);
             if (part.size() != sum.size()) return std::nullopt;
             for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
           }
           return cut ? std::optional(sum) : std::nullopt;
         },
         .text = [name](const std::string& line) { return line + "; all_reduce over " + name; }});
  }
}

void count_faults(const Setting& s, std::vector<Fault>& all) {
  const auto mean_over = [&](std::string name, std::string sentence, std::function<double(const Part&)> share) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .factor = [share = std::move(share)](
                                 const Seen&, const Part& part) { return part.auxiliary ? 1 : 1 / share(part); },
                   .text = [](const std::string& line) { return line + " {scale 1 ÷ own labels}"; }});
  };
  const int dp = s.layout.mesh.dp, microbatches = s.layout.microbatches;
  // Under a loss that weighs microbatches alike, the fault is the mean over all labels.
  const bool by_tokens = s.layout.loss == LossMean::tokens;
  const auto power = [by_tokens](double share) { return by_tokens ? share : 1 / share; };
  if (dp > 1)
    mean_over(
        "local_count.dp", "each dp rank divides by its own labels, not by the mean of all",
        [power, setting = s](const Part& part) { return power(share_of(setting, part.at.at(Axis::dp), -1)); });
  if (microbatches > 1)
    mean_over("local_count.microbatch",
              "each microbatch counts by the labels of its own (a mean of means, or none)",
              [power, setting = s](const Part& part) { return power(share_of(setting, -1, part.microbatch)); });
  if (dp > 1 && microbatches > 1)
    mean_over("local_count.both",
              by_tokens
                  ? "the losses are averaged over each microbatch of each rank, then over these: a mean of means"
                  : "the losses are averaged over all labels, not over microbatches first",
              [power, setting = s](const Part& part) {
                return power(share_of(setting, part.at.at(Axis::dp), part.microbatch));
              });
  if (s.layout.mesh.cp > 1 && by_tokens)
    mean_over("local_count.cp", "each cp rank divides by the labels among its own positions",
              [setting = s](const Part& part) { return context_share(setting, part.at); });
  if (dp > 1 && by_tokens)
    all.push_back({.name = "count_of_own",
                   .sentence = "each rank divides the sum by its own labels, not by those of all ranks",
                   .factor =
                       [setting = s](const Seen& seen, const Part& part) {
                         return part.auxiliary ? 1 : 1 / share_of(setting, seen.here.at(Axis::dp), -1);
                       },
                   .text = [](const std::string& line) { return line + " {scale 1 ÷ own labels}"; }});
  if (dp * s.layout.mesh.cp > 1 && by_tokens)
    all.push_back({.name = "total_by_own",
                   .sentence = "the sum over all ranks is divided by each rank's own labels: their number is not "
                               "summed over dp and cp",
                   .factor =
                       [setting = s](const Seen& seen, const Part&) {
                         return setting.layout.mesh.dp * setting.layout.mesh.cp / context_share(setting, seen.here);
                       },
                   .text = [](const std::string& line) { return line + " {scale 1 ÷ own labels}"; }});
  if (microbatches > 1) {
    const auto of_microbatches = [&](std::string name, std::string sentence, std::function<double(int)> factor) {
      all.push_back({.name = std::move(name),
                     .sentence = std::move(sentence),
                     .factor = [factor = std::move(factor)](const Seen&,
                                                            const Part& part) { return factor(part.microbatch); },
                     .text = [](const std::string& line) { return line + "  in some microbatches alone"; }});
    };
    const int last = microbatches - 1;
    of_microbatches("only_last", "it holds the last microbatch alone: the sum begins anew in each",
                    [last](int m) { return m == last ? 1.0 : 0.0; });
    of_microbatches("only_first", "it holds the first microbatch alone", [](int m) { return m == 0 ? 1.0 : 0.0; });
    of_microbatches("last_missing", "the last microbatch is missing in it",
                    [last](int m) { return m == last ? 0.0 : 1.0; });
    of_microbatches("first_missing", "the first microbatch is missing in it",
                    [](int m) { return m == 0 ? 0.0 : 1.0; });
    of_microbatches("last_twice", "the last microbatch is in it twice",
                    [last](int m) { return m == last ? 2.0 : 1.0; });
    of_microbatches("first_twice", "the first microbatch is in it twice", [](int m) { return m == 0 ? 2.0 : 1.0; });
    of_microbatches("summed_again",
                    "it is reduced after each microbatch, so that what was summed before is summed again",
                    [last, dp](int m) { return std::pow(dp, last - m); });
  }
}

void scale_faults(const Setting& s, std::vector<Fault>& all) {
  const auto times = [&](std::string name, std::string sentence, double factor,
                         std::function<bool(const Part&)> of = {}) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .constant = !of,
         .factor = [factor, of = std::move(of)](const Seen&,
                                                const Part& part) { return !of || of(part) ? factor : 1.0; },
         .text = [factor](const std::string& line) { return fmt::format("{} {{scale {:.6g}}}", line, factor); }});
  };
  const auto axes = long_axes(s.layout);
  std::vector<std::pair<std::string, double>> degrees;
  for (const auto& [axis, degree] : axes) degrees.emplace_back(std::string(ir::name_of(axis)), degree);
  const plan::Degrees& mesh = s.layout.mesh;
  if (mesh.dp > 1 && mesh.cp > 1) degrees.emplace_back("dp × cp", mesh.dp * mesh.cp);
  for (const auto& [name, degree] : degrees) {
    times("times." + name,
          fmt::format(
              "it is multiplied by the degree of {}: summed over {} twice, or summed where it should be averaged",
              name, name),
          degree);
    times("divided_by." + name, fmt::format("it is divided by the degree of {} once more", name), 1.0 / degree);
  }
  if (s.layout.microbatches > 1) {
    times("times.microbatches", "it is multiplied by the number of microbatches: they are summed, not averaged",
          s.layout.microbatches);
    times("divided_by.microbatches", "it is divided by the number of microbatches once more",
          1.0 / s.layout.microbatches);
  }
  times("twice", "it is added twice", 2);
  times("half", "it is halved", 0.5);
  times("zero", "it is zero: nothing is added to it, or it is overwritten", 0);
  times("negative", "it has the other sign", -1);
  for (const auto& [axis, degree] : axes) {
    if (degree == 2) continue;
    times(fmt::format("times.{}.squared", ir::name_of(axis)),
          fmt::format("it is multiplied by the square of the degree of {}", ir::name_of(axis)), degree * degree);
  }
  const model::ModelConfig& model = s.reference.model();
  if (model.sequence_aux_loss_alpha <= 0 && model.z_loss_weight <= 0) return;
  const auto auxiliary = [](const Part& part) { return part.auxiliary; };
  times("aux.zero", "the router's auxiliary loss has no gradient in it", 0, auxiliary);
  std::vector<std::pair<std::string, double>> factors = degrees;
  factors.emplace_back("microbatches", s.layout.microbatches);
  for (const auto& [name, degree] : factors) {
    if (degree == 1) continue;
    times("aux.times." + name,
          fmt::format("the router's auxiliary loss counts {} times: the scaling by {} is missing", degree, name),
          degree, auxiliary);
    times("aux.divided_by." + name, fmt::format("the router's auxiliary loss is divided by {} once more", name),
          1 / degree, auxiliary);
  }
  times("aux.twice", "the router's auxiliary loss is added twice", 2, auxiliary);
}

}  // namespace heddle::check
