#include "heddle/schedule/pipeline.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::schedule {

Pipeline::Pipeline(const Generator& generator)
    : generator_(generator), figures_(std::make_unique<FiguresOf>(generator)), least_chunks_(generator.chunks) {
  // At this size the ends of the model lie on the same ranks, and pairs are seen, as at any.
  constexpr PipelineSize kSmall{4, 0, 8};
  const Schedule small = make(kSmall);
  pairs_ = std::any_of(small.order.begin(), small.order.end(), [](const std::vector<Action>& rank) {
    return std::any_of(rank.begin(), rank.end(), [](const Action& action) { return action.with.has_value(); });
  });
  routes_ = small.placement.routes;
  const std::vector<int>& rank_of = small.placement.rank_of;
  for (size_t c = 0; c < rank_of.size(); ++c)
    folded_ = folded_ || (rank_of[c] == rank_of[0] && small.placement.is_last(static_cast<int>(c)));
  if (!generator.any_chunks) return;
  for (least_chunks_ = 1; least_chunks_ < generator.chunks; ++least_chunks_) {
    try {
      make({kSmall.ranks, least_chunks_, kSmall.microbatches});
      break;
    } catch (const ConfigError&) {  // too few
    }
  }
}

Schedule Pipeline::make(const PipelineSize& size) const {
  GeneratorOptions options;
  options.ranks = size.ranks;
  options.chunks = generator_.any_chunks ? size.chunks : 0;
  options.microbatches = static_cast<int>(size.microbatches);
  return make_schedule(generator_, options);
}

std::string_view Pipeline::misfit(const PipelineSize& size) const {
  if (size.ranks == 1 && !outline().alone) return "one rank is no pipeline";
  if (size.chunks < least_chunks_) return "too few chunks";
  if (outline().misfit != nullptr) return outline().misfit(size);
  // If formulas give everything, any size will do.
  const bool known = outline().bubble != nullptr && outline().in_flight != nullptr;
  return known ? std::string_view() : figures_->refusal(size);
}

double Pipeline::bubble(const PipelineSize& size, const StageTimes& rank) const {
  return outline().bubble != nullptr ? outline().bubble(size, rank) : figures_->bubble(size, rank);
}

double Pipeline::in_flight(const PipelineSize& size, int rank) const {
  return outline().in_flight != nullptr ? outline().in_flight(size, rank) : figures_->in_flight(size, rank);
}

double Pipeline::unpaired(const PipelineSize& size) const {
  return outline().unpaired != nullptr ? outline().unpaired(size) : figures_->unpaired(size);
}

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all = [] {
    std::vector<Pipeline> list;
    for (const Generator& generator : generators()) list.emplace_back(generator);
    return list;
  }();
  return all;
}

const Pipeline* find_pipeline(std::string_view name) {
  for (const Pipeline& p : pipelines())
    if (p.name() == name) return &p;
  return nullptr;
}

std::vector<std::string> searched_names() {
  std::vector<std::string> names;
  for (const Pipeline& p : pipelines())
    if (p.outline().passed_over.empty()) names.emplace_back(p.name());
  return names;
}

}  // namespace heddle::schedule
