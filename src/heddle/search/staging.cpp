#include "heddle/search/staging.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/schedule/generators.h"
#include "heddle/search/block_work.h"

namespace heddle::search {

namespace {

double d(int64_t n) { return static_cast<double>(n); }

// With fused attention a linear's input is nearly all that is kept, and weight gradients need it (docs of
// `heddle schedule --memory`).
constexpr double kKeptForWeights = 0.94;

/// Seconds of one microbatch in a layer, and the exchange apart where schedules hide it.
struct LayerTimes {
  double forward = 0, input_grad = 0, weight_grad = 0;
  double exchange = 0;         // of each direction, alone
  double exposed_in_pair = 0;  // of both directions, beside another microbatch
  double spare_in_pair = 0;    // compute of a pair beyond what its hidden exchange takes
  LayerTimes& operator+=(const LayerTimes& t) {
    forward += t.forward, input_grad += t.input_grad, weight_grad += t.weight_grad;
    exchange += t.exchange, exposed_in_pair += t.exposed_in_pair, spare_in_pair += t.spare_in_pair;
    return *this;
  }
  LayerTimes scaled(double f) const {
    return {forward * f, input_grad * f, weight_grad * f, exchange * f, exposed_in_pair * f, spare_in_pair * f};
  }
  double sum() const { return forward + input_grad + weight_grad; }
  // No more is hidden than there is compute to hide it.
  double paired_exchange() const { return exposed_in_pair + std::max(0.0, -spare_in_pair); }
};

class LayerClock {
 public:
  LayerClock(const Job& job, const Behaviour& behaviour)
      : j_(job), b_(behaviour), apart_(pairs(pipeline_of(job))) {}

  LayerTimes of(const BlockWork& block, BlockKind kind) const {
    return of(block.forward, with_recompute(block, j_.recompute, kind), block.weights);
  }
  LayerTimes of(Work forward, Work backward, const Work& weights) const {
    LayerTimes t;
    if (apart_) {
      const auto alone = [&](const Work& w) { return (w.exchange + w.hidden_exchange) / (1 + b_.contention); };
      t.exchange = (alone(forward) + alone(backward)) / 2;
      t.exposed_in_pair = forward.exchange + backward.exchange;
      t.spare_in_pair = forward.compute() + backward.compute() - forward.hidden_exchange - backward.hidden_exchange;
      forward.exchange = backward.exchange = 0;
    }
    t.forward = block_s(forward, j_, b_);
    const double whole = block_s(backward, j_, b_);
    t.weight_grad = backward.device_s() > 0 ? whole * weights.device_s() / backward.device_s() : 0;
    t.input_grad = whole - t.weight_grad;
    return t;
  }

 private:
  const Job& j_;
  const Behaviour& b_;
  bool apart_;  // the exchange is timed apart
};

schedule::GeneratorOptions options_of(const Job& j, Pipeline pipeline) {
  schedule::GeneratorOptions options;
  options.ranks = j.layout.pp;
  options.microbatches = static_cast<int>(microbatches(j));
  options.chunks = chunks_of(pipeline) > 0 ? 0 : j.layout.vpp;
  return options;
}

// Layers of each stage. Each layer goes to the rank with the least work so far, there to the stage with the least;
// among equals to the later one, which holds fewer microbatches. The last stage begins with the head's work.
std::vector<int> spread_layers(const Job& j, const schedule::Placement& place, double head_layers) {
  const auto stages = static_cast<size_t>(place.stages);
  const int64_t layers = j.shape.layers;
  std::vector<int> of(stages, static_cast<int>(layers / place.stages));
  if (layers % place.stages == 0 && (j.software.even_stages || head_layers <= 1)) return of;
  if (j.software.even_stages && (layers + 2) % place.stages == 0) {
    of.assign(stages, static_cast<int>((layers + 2) / place.stages));
    --of.front(), --of.back();
    return of;
  }
  std::vector<double> rank_load(static_cast<size_t>(place.ranks), 0), stage_load(stages, 0);
  stage_load[stages - 1] = head_layers;
  for (size_t c = 0; c < place.rank_of.size(); ++c)
    if (place.is_last(static_cast<int>(c))) rank_load[static_cast<size_t>(place.rank_of[c])] += head_layers;
  of.assign(stages, 0);
  // With two routes a stage loads the ranks of both its copies.
  const auto load_of = [&](size_t s) {
    double load = 0;
    for (size_t c = s; c < place.rank_of.size(); c += stages)
      load = std::max(load, rank_load[static_cast<size_t>(place.rank_of[c])]);
    return load;
  };
  for (int64_t i = 0; i < layers; ++i) {
    size_t best = 0;
    for (size_t s = 1; s < stages; ++s)
      if (std::tuple(load_of(s), stage_load[s]) <= std::tuple(load_of(best), stage_load[best])) best = s;
    ++of[best];
    stage_load[best] += 1;
    for (size_t c = best; c < place.rank_of.size(); c += stages)
      rank_load[static_cast<size_t>(place.rank_of[c])] += 1;
  }
  return of;
}

}  // namespace

Staged stage_job(const Job& j, const Behaviour& b, const schedule::Placement& place) {
  Staged staged;
  const Layout& l = j.layout;
  const Pipeline pipeline = pipeline_of(j);
  const model::Parameters p = model::parameters_of(j.shape);
  const Prices prices = prices_of(j, p, b);
  const Layers layers = layers_of(j, prices, b);
  const MemoryParts memory = memory_parts(j, p, layers);
  const LayerClock clock(j, b);

  const LayerTimes attention = clock.of(prices.attention, BlockKind::attention),
                   dense = clock.of(prices.dense, BlockKind::dense), moe = clock.of(prices.moe, BlockKind::moe),
                   mamba = clock.of(prices.mamba, BlockKind::mamba);
  const auto blocks = [&](double n_attention, double n_dense, double n_moe, double n_mamba) {
    LayerTimes t = attention.scaled(n_attention);
    t += dense.scaled(n_dense);
    t += moe.scaled(n_moe);
    t += mamba.scaled(n_mamba);
    return t;
  };
  const double n = d(j.shape.layers);
  const LayerTimes mean = blocks(d(j.shape.attention_blocks()) / n, d(j.shape.dense_blocks()) / n,
                                 d(j.shape.moe_blocks()) / n, d(j.shape.mamba_blocks()) / n);
  const bool alike = j.shape.is_hybrid();
  const LayerTimes dense_layer = alike ? mean : blocks(1, 1, 0, 0), moe_layer = alike ? mean : blocks(1, 0, 1, 0);
  const double mtp = j.with_mtp ? d(j.shape.mtp) : 0;
  LayerTimes tail = clock.of(prices.head.forward, prices.head.backward, prices.head.weights).scaled(1 + mtp);
  tail += mean.scaled(mtp);

  const double per_layer = mean.sum() + mean.paired_exchange();
  staged.layers = spread_layers(j, place, (tail.sum() + tail.paired_exchange()) / per_layer);

  const bool chunked = place.stages > place.ranks;
  double hop = 0, waits = 0;
  if (l.pp > 1) {
    const double bytes = 2.0 * j.microbatch * j.sequence * d(j.shape.hidden) / l.cp;
    hop = cost::send_s(j.device, b.net, l.devices / l.pp, j.software.sequence_parallel ? bytes / l.tp : bytes);
    // What isn't overlapped waits in line.
    waits = hop * (pairs(pipeline) || (j.software.overlap_pp && chunked) ? b.contention : 1);
  }
  staged.times.hop = hop;
  staged.times.pair = pairs(pipeline) ? 1 + mean.paired_exchange() / mean.sum() : 1;
  const int64_t leading_dense = alike ? 0 : j.shape.dense_blocks();
  int64_t at = 0;
  staged.fixed_bytes.assign(static_cast<size_t>(place.ranks), memory.mean.gathered);
  staged.working_bytes.assign(static_cast<size_t>(place.ranks), memory.working);
  for (int s = 0; s < place.stages; ++s) {
    const int count = staged.layers[static_cast<size_t>(s)];
    const double n_dense = d(std::clamp<int64_t>(leading_dense - at, 0, count)), n_moe = count - n_dense;
    at += count;
    LayerTimes t = dense_layer.scaled(n_dense);
    t += moe_layer.scaled(n_moe);
    double kept = n_dense * memory.dense.kept + n_moe * memory.moe.kept;
    // With two routes a rank has two stages, whose states it shares with the rank of their other copies.
    double fixed = (n_dense * memory.dense.fixed + n_moe * memory.moe.fixed) / place.routes;
    if (s == 0) fixed += memory.embedding_fixed;
    if (s == place.stages - 1) {
      t += tail;
      kept += mtp * memory.mean.kept;
      fixed += memory.head_fixed + mtp * memory.mean.fixed_once +
               (j.shape.tied && l.pp > 1 ? memory.embedding_fixed : 0);
    }
    staged.times.stages.push_back({t.forward + waits, t.input_grad + waits, t.weight_grad, t.exchange});
    staged.stage_bytes.push_back({(1 - kKeptForWeights) * kept, kKeptForWeights * kept});
    for (int c = s; c < static_cast<int>(place.rank_of.size()); c += place.stages) {
      const auto r = static_cast<size_t>(place.rank_of[static_cast<size_t>(c)]);
      staged.fixed_bytes[r] += fixed;
      if (s == place.stages - 1) staged.working_bytes[r] = std::max(staged.working_bytes[r], memory.head_working);
    }
  }
  return staged;
}

PreparedSchedule::PreparedSchedule(const Job& j)
    : schedule(schedule::make_schedule(name_of(pipeline_of(j)), options_of(j, pipeline_of(j)))),
      links(schedule::links_of(schedule)),
      order(schedule::running_order(schedule, links)) {}

std::string PreparedSchedule::key(const Job& j) {
  return fmt::format("{} {} {} {}", name_of(pipeline_of(j)), j.layout.pp, j.layout.vpp, microbatches(j));
}

Exact exact_of(const Job& j, const Behaviour& b) { return exact_of(j, b, PreparedSchedule(j)); }

Exact exact_of(const Job& j, const Behaviour& b, const PreparedSchedule& prepared) {
  const schedule::Schedule& schedule = prepared.schedule;
  const Staged staged = stage_job(j, b, schedule.placement);
  const schedule::Timing timing = schedule::timing_of(schedule, staged.times, prepared.links, prepared.order);
  const std::vector<schedule::Peak> peaks = schedule::peaks_of(schedule, staged.stage_bytes);
  const Estimate closed = estimate(j, b);
  if (!closed.reason.empty()) config_error("search: no step to time: {}", closed.reason);
  Exact e;
  e.bubble_s = timing.synchronous();
  const Waterfall& t = closed.time;
  e.exposed_s = t.tensor + t.context + t.pipeline + t.data +
                (pairs(pipeline_of(j)) ? timing.work - timing.useful : t.exchange);
  e.step_s =
      (timing.makespan + closed.beside_s) * (1 + b.jitter * std::log2(std::max(1.0, j.layout.devices / 8.0)));
  e.layers = staged.layers;
  for (size_t r = 0; r < peaks.size(); ++r)
    e.rank_peak_bytes.push_back((peaks[r].bytes + staged.fixed_bytes[r] + staged.working_bytes[r]) *
                                    j.software.reserve +
                                j.software.context_bytes);
  e.peak_bytes = *std::max_element(e.rank_peak_bytes.begin(), e.rank_peak_bytes.end());
  return e;
}

}  // namespace heddle::search
