#include "heddle/search/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/search/plans/context.h"
#include "heddle/search/plans/replicas.h"

namespace heddle::search {

namespace {

constexpr int kMostTensorRanks = 64, kMostContextRanks = 64, kMostExpertTensorRanks = 8, kMostChunks = 16;
constexpr int kMostMicrobatch = 8, kMostStages = 256;

bool allowed(const std::vector<int>& axis, int value) {
  return axis.empty() || std::find(axis.begin(), axis.end(), value) != axis.end();
}

template <class Each>
void for_each_word(std::string_view list, const Each& each) {
  while (true) {
    const size_t comma = list.find(',');
    each(list.substr(0, comma));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

const std::vector<RecomputeChoice>& all_recompute_choices() {
  using R = Recompute;
  static const std::vector<RecomputeChoice> all = {
      {"none", R{}},
      {"norms", R{GroupName::norm}},
      {"activations", R{GroupName::activation}},
      {"norms+activations", R{GroupName::norm, GroupName::activation}},
      {"latent_up", R{GroupName::mla_up}},
      {"norms+latent_up", R{GroupName::norm, GroupName::mla_up}},
      {"norms+latent_up+activations", R{GroupName::norm, GroupName::mla_up, GroupName::activation}},
      {"dense", R{GroupName::mlp}},
      {"norms+dense", R{GroupName::norm, GroupName::mlp}},
      {"norms+experts", R{GroupName::norm, GroupName::moe}},
      {"norms+latent_up+experts", R{GroupName::norm, GroupName::mla_up, GroupName::moe}},
      {"full/2", R{{GroupName::layer}, 0.5}},
      {"full", R{GroupName::layer}},
  };
  return all;
}

}  // namespace

void Restriction::set(std::string_view words) {
  struct Axis {
    const char* name;
    std::vector<int>* values;
  };
  const Axis axes[] = {{"tp", &tp},
                       {"cp", &cp},
                       {"dp", &dp},
                       {"pp", &pp},
                       {"vpp", &vpp},
                       {"ep", &ep},
                       {"etp", &etp},
                       {"offload", &offload},
                       {"uneven", &uneven},
                       {"by_stage", &by_stage},
                       {"microbatch", &microbatch},
                       {"shard_ranks", &sharding.ranks}};
  struct WordAxis {
    const char* name;
    std::vector<std::string>* values;
    std::vector<std::string> accepted;
  };
  std::vector<std::string> levels, homes = all_words<plan::StateResidency>();
  for (const RecomputeChoice& c : all_recompute_choices()) levels.push_back(c.name);
  std::erase(homes, word_of(plan::StateResidency::cheapest));
  const std::vector<std::string> places{"device", "host"};
  const WordAxis word_axes[] = {{"recompute", &recompute, levels},
                                {"optimizer", &residency.optimizer, homes},
                                {"master", &residency.master, all_words<plan::MasterForm>()},
                                {"weights", &residency.weights, places},
                                {"gradients", &residency.gradients, places},
                                {"shard", &sharding.shard, all_words<passes::Shard>()},
                                {"context", &context, context_words()},
                                {"replicas", &replicas, {}}};
  std::vector<std::string> names{"schedule"};
  for (const WordAxis& axis : word_axes) names.emplace_back(axis.name);
  for (const Axis& axis : axes) names.emplace_back(axis.name);
  const size_t equals = words.find('=');
  const std::string_view name = words.substr(0, equals);
  if (equals == std::string_view::npos || std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string near = equals == std::string_view::npos ? "" : did_you_mean(name, names);
    config_error("restriction '{}'{}", words.substr(0, 60),
                 near.empty()
                     ? fmt::format(", accepted: NAME=VALUE[,VALUE...] with a name of {}", fmt::join(names, ", "))
                     : near);
  }
  if (name == "schedule") schedule.clear();
  for (const WordAxis& axis : word_axes)
    if (axis.name == name) axis.values->clear();
  for (const Axis& axis : axes)
    if (axis.name == name) axis.values->clear();
  for_each_word(words.substr(equals + 1), [&](std::string_view word) {
    if (name == "schedule") {
      const Pipeline p = schedule::find_pipeline(word);
      if (p == nullptr)
        config_error("restriction schedule: '{}', accepted: {}", word.substr(0, 60),
                     fmt::join(schedule::generator_names(), ", "));
      schedule.push_back(p);
      return;
    }
    for (const WordAxis& axis : word_axes) {
      if (axis.name != name) continue;
      if (name == "replicas") {
        if (!replicas_of(word))
          config_error("restriction replicas: '{}', accepted: off, auto, or 1 to 64 slots", word.substr(0, 60));
      } else if (std::find(axis.accepted.begin(), axis.accepted.end(), word) == axis.accepted.end())
        config_error("restriction {}: '{}', accepted: {}", name, word.substr(0, 60),
                     fmt::join(axis.accepted, ", "));
      axis.values->emplace_back(word);
      return;
    }
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool is_switch = name == "offload" || name == "uneven" || name == "by_stage";
    const int least = is_switch || name == "shard_ranks" ? 0 : 1;
    if (error != std::errc() || end != word.data() + word.size() || value < least ||
        value > (is_switch ? 1 : 1 << 24))
      config_error("restriction {}: '{}', accepted: {}", name, word.substr(0, 60),
                   is_switch ? "0 or 1" : fmt::format("whole numbers from {} on", least));
    for (const Axis& axis : axes)
      if (axis.name == name) axis.values->push_back(value);
  });
}

std::vector<RecomputeChoice> recompute_choices(const model::Shape& s) {
  std::vector<RecomputeChoice> choices;
  for (const RecomputeChoice& c : all_recompute_choices()) {
    const Recompute& r = c.recompute;
    if (r.has(GroupName::mla_up) && !s.is_latent()) continue;
    if (r.has(GroupName::moe) && s.moe_blocks() == 0) continue;
    if (r.has(GroupName::mlp) && s.moe_blocks() > 0) continue;
    choices.push_back(c);
  }
  return choices;
}

std::vector<int> divisors(int n) {
  std::vector<int> low, high;
  for (int i = 1; static_cast<int64_t>(i) * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.push_back(n / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<std::string> microbatch_words(int64_t global_batch, int64_t most) {
  std::vector<std::string> words;
  for (const int n : divisors(static_cast<int>(global_batch)))
    if (n <= most) words.push_back(std::to_string(n));
  return words;
}

std::vector<Family> families(const Space& space) {
  const Restriction& only = space.restriction;
  const model::Shape& s = space.job.shape;
  const std::vector<int> degrees = divisors(space.devices);
  const auto of = [&](const std::vector<int>& axis, int most, const auto& fits) {
    std::vector<int> values;
    for (const int n : degrees)
      if (n <= most && allowed(axis, n) && fits(n)) values.push_back(n);
    return values;
  };
  const std::vector<int> tps = of(only.tp, kMostTensorRanks, [&](int n) {
    const bool groups = s.is_latent() || s.num_key_value_heads % n == 0 || n % s.num_key_value_heads == 0;
    return s.num_attention_heads % n == 0 && groups && (s.intermediate_size % n == 0 || s.dense_blocks() == 0);
  });
  const std::vector<int> cps = of(only.cp, kMostContextRanks, [&](int n) {
    return n == 1 || (std::fmod(space.job.sequence, 2.0 * n) == 0 && space.job.sequence / n >= space.fewest_tokens);
  });
  const bool moe = s.moe_blocks() > 0;
  const int64_t experts = moe ? s.n_routed_experts : 1;
  const std::vector<int> eps = of(only.ep, static_cast<int>(experts), [&](int n) { return experts % n == 0; });
  const std::vector<int> etps = of(only.etp, moe ? kMostExpertTensorRanks : 1,
                                   [&](int n) { return !moe || s.moe_intermediate_size % n == 0; });
  std::vector<int> sizes;
  for (const int n : divisors(space.job.global_batch))
    if (allowed(only.microbatch, n) && (n <= kMostMicrobatch || !only.microbatch.empty())) sizes.push_back(n);
  const auto needed = [&](const char* axis, const std::vector<int>& values, const std::vector<int>& asked) {
    if (values.empty())
      config_error("search: no {} of {} suits {} on {} devices", axis, fmt::join(asked, ", "), s.name,
                   space.devices);
  };
  needed("tp", tps, only.tp), needed("cp", cps, only.cp), needed("ep", eps, only.ep);
  needed("etp", etps, only.etp), needed("microbatch", sizes, only.microbatch);

  std::vector<Family> all;
  for (const int tp : tps)
    for (const int cp : cps)
      for (const int ep : eps)
        for (const int etp : etps)
          for (const int microbatch : sizes)
            if (space.devices % (static_cast<int64_t>(tp) * cp) == 0 &&
                space.devices % (static_cast<int64_t>(ep) * etp) == 0)
              all.push_back({tp, cp, ep, etp, microbatch});
  if (all.empty()) config_error("search: no tp x cp and ep x etp divide {} devices", space.devices);
  return all;
}

void for_each_layout(const Space& space, const Family& family, Job& job, const std::function<void()>& visit) {
  const Restriction& only = space.restriction;
  const int64_t layers = job.shape.num_hidden_layers;
  const int attention_ranks = family.tp * family.cp, expert_ranks = family.ep * family.etp;
  const bool even = only.even();
  plan::Degrees& l = job.mesh;
  l.tp = family.tp, l.cp = family.cp, l.ep = family.ep, l.etp = family.etp;
  job.microbatch = family.microbatch;
  for (const int pp : divisors(space.devices / attention_ranks)) {
    if (pp > std::min<int64_t>(layers, kMostStages) || !allowed(only.pp, pp)) continue;
    const int stage_ranks = space.devices / pp, dp = stage_ranks / attention_ranks;
    if (stage_ranks % expert_ranks != 0 || !allowed(only.dp, dp)) continue;
    if (job.global_batch % (static_cast<int64_t>(dp) * family.microbatch) != 0) continue;
    l.pp = pp, l.dp = dp;
    const double m = microbatches(job);
    for (const schedule::Pipeline& pipeline : schedule::pipelines()) {
      const std::vector<Pipeline>& asked = only.schedule;
      if (asked.empty() ? !pipeline.outline().passed_over.empty()
                        : std::find(asked.begin(), asked.end(), &pipeline) == asked.end())
        continue;
      // Pairs are for exchanges.
      if (pipeline.pairs() && family.ep == 1) continue;
      const int fixed = pipeline.chunks(), least = pipeline.least_chunks();
      const int most = fixed > 0 ? fixed : pp == 1 ? 1 : kMostChunks;
      for (int chunks = least;
           chunks <= most && static_cast<int64_t>(pp) * chunks <= std::max<int64_t>(pp, layers + 2); ++chunks) {
        if (fixed == 0 && !allowed(only.vpp, chunks)) continue;
        if (!pipeline.misfit({pp, chunks, m}).empty()) continue;
        const int64_t stages = static_cast<int64_t>(pp) * chunks;
        if (even && layers % stages != 0 && (layers + 2) % stages != 0) continue;
        job.chunks = fixed > 0 ? 1 : chunks;
        job.pipeline = &pipeline;
        job.software.overlap_exchange = pipeline.pairs();
        job.software.even_stages = even;
        visit();
      }
    }
  }
}

const std::vector<std::string>& not_considered() {
  std::vector<std::string_view> passed_over;
  for (const schedule::Pipeline& p : schedule::pipelines())
    if (!p.outline().passed_over.empty()) passed_over.push_back(p.name());
  static const std::vector<std::string> all = {
      "experts swapped to the host, replicas of hot ones chosen from the last steps",
      "recomputation and offload of single layers of a stage",
      fmt::format("synthesised orders, and {} unless asked for", fmt::join(passed_over, ", ")),
      "placements other than tp, cp, dp, pp from the inside out",
      "ways of context parallelism, unless asked for",
      "fewer devices than given",
  };
  return all;
}

}  // namespace heddle::search
