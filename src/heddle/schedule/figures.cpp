#include "heddle/schedule/figures.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/validate.h"

namespace heddle::schedule {

namespace {

// The share of the activations that only W reads: with fused attention a linear's input is nearly all that is kept.
constexpr StageBytes kKept{0.06, 0.94};

// Times at which chains are sought, the forward being 1. Input gradients last as long as it up to twice as long,
// with what they compute again; weight gradients are shorter or as long.
constexpr std::array kInputGrads{0.7, 1.0, 1.5, 2.2};
constexpr std::array kWeightGrads{0.4, 0.7, 1.0};

// Orders of more microbatches than the second number of ranks follow from those of both.
constexpr int64_t kShort = 4, kLong = 6;

}  // namespace

Figures::Figures(const Schedule& s) : microbatches_(s.microbatches) {
  const Links links = links_of(s);
  const std::vector<int> order = running_order(s, links);
  const double part = static_cast<double>(s.placement.ranks) / s.placement.stages;  // of a rank's layers, a stage's
  std::vector<double> end(links.at.size());
  const auto chain_at = [&](const Times& times) {
    const Timing timing = timing_of(s, times, links, order);
    std::vector<double> start(links.at.size());
    for (size_t r = 0; r < timing.of.size(); ++r) {
      for (size_t i = 0; i < timing.of[r].size(); ++i) {
        const size_t a = static_cast<size_t>(links.first_of[r]) + i;
        start[a] = timing.of[r][i].start;
        end[a] = timing.of[r][i].end;
      }
    }
    Chain chain;
    int at = static_cast<int>(std::max_element(end.begin(), end.end()) - end.begin());
    while (at >= 0) {
      const auto a = static_cast<size_t>(at);
      for (const Compute& c : parts_of(*links.at[a])) {
        if (c.kind == Kind::F) chain.forward += part;
        if (c.kind == Kind::I || c.kind == Kind::B) chain.input_grad += part;
        if (c.kind == Kind::W || c.kind == Kind::B) chain.weight_grad += part;
      }
      int before = -1;  // whose end it began at: the rank's last action, or what it needs
      const bool is_first = at == links.first_of[links.rank_of[a]];
      if (!is_first && end[a - 1] == start[a]) before = at - 1;
      for (int i = links.begin[a]; before < 0 && i < links.begin[a + 1]; ++i) {
        const int need = links.from[i];
        if (end[need] == start[a]) before = need;
      }
      at = before;
    }
    return chain;
  };
  for (const double input_grad : kInputGrads) {
    for (const double weight_grad : kWeightGrads) {
      const Chain found = chain_at(even_times(s.placement, {1, input_grad, weight_grad}));
      const bool known = std::any_of(chains_.begin(), chains_.end(), [&](const Chain& c) {
        return c.forward == found.forward && c.input_grad == found.input_grad && c.weight_grad == found.weight_grad;
      });
      if (!known) chains_.push_back(found);
    }
  }
  for (const Peak& peak : peaks_of(s, even_bytes(s.placement, kKept))) in_flight_.push_back(peak.bytes);
  for (const Action& action : s.order[s.placement.ranks / 2])
    if (!action.with && action.first.kind == Kind::F) unpaired_ += part;
}

double Figures::bubble(const StageTimes& rank) const {
  double longest = 0;
  for (const Chain& chain : chains_) longest = std::max(longest, chain.last(rank));
  return std::max(0.0, longest - microbatches_ * rank.sum());
}

template <class Of>
double FiguresOf::Made::between(double microbatches, const Of& of) const {
  if (!second) return of(*first);
  const double a = of(*first), b = of(*second);
  return a + (b - a) * (microbatches - at) / (beyond - at);
}

FiguresOf::Made FiguresOf::make(const PipelineSize& size) const {
  Made made;
  const auto ordered = [&](double microbatches) {
    GeneratorOptions options;
    options.ranks = size.ranks;
    options.chunks = size.chunks;
    options.microbatches = static_cast<int>(microbatches);
    return std::make_unique<Figures>(make_schedule(generator_, options));
  };
  const auto ranks = static_cast<double>(size.ranks);
  try {
    made.at = std::min(size.microbatches, kLong * ranks);
    if (size.microbatches > kLong * ranks) {
      made.at = kShort * ranks;
      made.beyond = kLong * ranks;
      made.second = ordered(made.beyond);
    }
    made.first = ordered(made.at);
  } catch (const ConfigError& error) {
    made.refusal = error.what();
  }
  return made;
}

FiguresOf::FiguresOf(const Generator& generator)
    : generator_(generator), number_([] {
        static std::atomic<uint64_t> made{0};
        return ++made;
      }()) {}

const FiguresOf::Made& FiguresOf::of(const PipelineSize& size) const {
  // Callers mostly ask again for the same size.
  struct Last {
    uint64_t number = 0;
    std::tuple<int, int, int64_t> key;
    const Made* made = nullptr;
  };
  thread_local Last last;
  const auto most = kLong * int64_t{size.ranks} + 1;  // as many as there are, or more
  const std::tuple key{size.ranks, size.chunks, std::min(most, static_cast<int64_t>(size.microbatches))};
  if (last.number == number_ && last.key == key) return *last.made;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Made>& made = made_[key];
  if (!made) made = std::make_unique<const Made>(make(size));
  last = {number_, key, made.get()};
  return *made;
}

double FiguresOf::bubble(const PipelineSize& size, const StageTimes& rank) const {
  return of(size).between(size.microbatches, [&](const Figures& f) { return f.bubble(rank); });
}

double FiguresOf::in_flight(const PipelineSize& size, int rank) const {
  return of(size).between(size.microbatches, [&](const Figures& f) { return f.in_flight(rank); });
}

double FiguresOf::unpaired(const PipelineSize& size) const {
  return of(size).between(size.microbatches, [&](const Figures& f) { return f.unpaired(); });
}

std::string_view FiguresOf::refusal(const PipelineSize& size) const { return of(size).refusal; }

}  // namespace heddle::schedule
