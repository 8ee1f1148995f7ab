#include "heddle/search/staging.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

// With fused attention a linear's input is nearly all that is kept, and weight gradients need it (docs of
// `heddle schedule --memory`).
constexpr double kKeptForWeights = 0.94;

class LayerClock {
 public:
  LayerClock(const Job& job, const Behaviour& behaviour)
      : j_(job), b_(behaviour), apart_(pipeline_of(job)->pairs()) {}

  LayerTimes of(const Prices& prices, const BlockWork& block, BlockKind kind) const {
    return of(block.forward, backward_of(prices, block, kind, j_), block.weights);
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

// Returns the parts of the busiest rank's time. The exposed exchange of pairs of microbatches is its busy time
// beyond the times of its stages.
Waterfall waterfall_of(const Estimate& closed, const Behaviour& b, const schedule::Schedule& schedule,
                       const Staged& staged, const schedule::Timing& timing, double step_s) {
  const auto rank = std::max_element(timing.busy.begin(), timing.busy.end()) - timing.busy.begin();
  const schedule::Placement& place = schedule.placement;
  Waterfall t;
  for (const int copy : place.stages_of(static_cast<int>(rank))) {
    const auto [first, last] = place.microbatches_of(copy, schedule.microbatches);
    const Waterfall& stage = staged.time[static_cast<size_t>(copy % place.stages)];
    for (double Waterfall::*part :
         {&Waterfall::products, &Waterfall::attention, &Waterfall::traffic, &Waterfall::launches,
          &Waterfall::tensor, &Waterfall::exchange, &Waterfall::context, &Waterfall::pipeline, &Waterfall::data})
      t.*part += (last - first) * stage.*part;
  }
  t.exchange += std::max(0.0, timing.work - t.sum());
  t.data += closed.beside_s - closed.time.optimizer - b.step_host_s;
  t.launches += b.step_host_s;
  t.optimizer = closed.time.optimizer;
  t.bubble = timing.synchronous();
  t.jitter = std::max(0.0, step_s - t.sum());
  return t;
}

}  // namespace

LayerTimes& LayerTimes::operator+=(const LayerTimes& t) {
  forward += t.forward, input_grad += t.input_grad, weight_grad += t.weight_grad;
  exchange += t.exchange, exposed_in_pair += t.exposed_in_pair, spare_in_pair += t.spare_in_pair;
  return *this;
}

LayerTimes LayerTimes::scaled(double f) const {
  return {forward * f, input_grad * f, weight_grad * f, exchange * f, exposed_in_pair * f, spare_in_pair * f};
}

StageCosts::StageCosts(const Job& job, const Behaviour& b, const std::vector<Keeping>& ways) : job_(job) {
  const model::Parameters p = model::parameters_of(job.shape);
  Prices prices = prices_of(job, p, b);
  const model::Shape& s = job.shape;
  const double n = d(s.num_hidden_layers), mtp = job.with_mtp ? d(s.num_nextn_predict_layers) : 0;
  if (const plan::Degrees& l = job.mesh; l.pp > 1) {
    const double bytes = 2.0 * job.microbatch * job.sequence * d(s.residual_width()) / l.cp;
    hop_s_ =
        cost::send_s(job.device, b.net, l.stage_ranks(), job.software.sequence_parallel ? bytes / l.tp : bytes);
    overlapped_hop_s_ = hop_s_ * b.contention;
  }
  for (const Keeping& keeping : ways) {
    job_.recompute = keeping.recompute;
    job_.software.offload_activations = keeping.offload;
    if (prices.saved) prices = prices_of(job_, p, b);  // with what this way computes again
    const Layers layers = layers_of(job_, prices, b);
    const LayerClock clock(job_, b);
    const LayerTimes attention = clock.of(prices, prices.attention, BlockKind::attention),
                     dense = clock.of(prices, prices.dense, BlockKind::dense),
                     moe = clock.of(prices, prices.moe, BlockKind::moe),
                     mamba = clock.of(prices, prices.mamba, BlockKind::mamba);
    const auto blocks = [&](double n_attention, double n_dense, double n_moe, double n_mamba) {
      LayerTimes t = attention.scaled(n_attention);
      t += dense.scaled(n_dense);
      t += moe.scaled(n_moe);
      t += mamba.scaled(n_mamba);
      t.forward += layers.offload_out_s;
      t.input_grad += layers.offload_back_s;
      return t;
    };
    Way way;
    way.mean = blocks(d(s.attention_blocks()) / n, d(s.dense_blocks()) / n, d(s.moe_blocks()) / n,
                      d(s.mamba_blocks()) / n);
    way.dense = s.interleaves() ? way.mean : blocks(1, 1, 0, 0);
    way.moe = s.interleaves() ? way.mean : blocks(1, 0, 1, 0);
    way.tail = clock.of(prices.head.forward, prices.head.backward, prices.head.weights).scaled(1 + mtp);
    way.tail.forward += layers.head_copies_s;
    way.embedding_copies_s = layers.embedding_copies_s;
    way.tail += way.mean.scaled(mtp);
    const bool apart = pipeline_of(job_)->pairs();
    const auto both_ways = [&](const Work& forward, const Work& backward) {
      Work w = forward;
      w += backward;
      if (apart) w.exchange = 0;  // it is timed apart
      return w;
    };
    const auto work_of = [&](double n_attention, double n_dense, double n_moe, double n_mamba) {
      Work w;
      const auto add = [&](const BlockWork& block, BlockKind kind, double count) {
        if (count > 0) w += both_ways(block.forward, backward_of(prices, block, kind, job_)).scaled(count);
      };
      add(prices.attention, BlockKind::attention, n_attention);
      add(prices.dense, BlockKind::dense, n_dense);
      add(prices.moe, BlockKind::moe, n_moe);
      add(prices.mamba, BlockKind::mamba, n_mamba);
      w.traffic += layers.offload_out_s + layers.offload_back_s;
      return w;
    };
    way.mean_work = work_of(d(s.attention_blocks()) / n, d(s.dense_blocks()) / n, d(s.moe_blocks()) / n,
                            d(s.mamba_blocks()) / n);
    way.dense_work = s.interleaves() ? way.mean_work : work_of(1, 1, 0, 0);
    way.moe_work = s.interleaves() ? way.mean_work : work_of(1, 0, 1, 0);
    way.tail_work = both_ways(prices.head.forward, prices.head.backward).scaled(1 + mtp);
    way.tail_work.traffic += layers.head_copies_s;
    way.tail_work += way.mean_work.scaled(mtp);
    way.memory = memory_parts(job_, p, layers);
    ways_.push_back(way);
  }
  job_ = job;
}

double StageCosts::layer_s(int way) const { return of(way).mean.sum() + of(way).mean.paired_exchange(); }

// Each layer goes to the rank with the least work so far, there to the stage with the least; among equals to the
// later one, which holds fewer microbatches. The last stage begins with the head's work. Work is counted in layers
// of the first stage.
std::vector<int> StageCosts::spread(const schedule::Placement& place, const std::vector<int>& way_of_stage) const {
  const auto stages = static_cast<size_t>(place.stages);
  const int64_t layers = job_.shape.num_hidden_layers;
  const bool even = job_.software.even_stages;
  const double unit = layer_s(way_of_stage.front());
  std::vector<double> weight(stages);
  std::transform(way_of_stage.begin(), way_of_stage.end(), weight.begin(),
                 [&](int way) { return layer_s(way) / unit; });
  const bool alike = std::all_of(weight.begin(), weight.end(), [](double w) { return w == 1; });
  const LayerTimes& tail = of(way_of_stage.back()).tail;
  const double head_layers = (tail.sum() + tail.paired_exchange()) / unit;
  std::vector<int> of_stage(stages, static_cast<int>(layers / place.stages));
  if (layers % place.stages == 0 && (even || (alike && head_layers <= 1))) return of_stage;
  if (even && (layers + 2) % place.stages == 0) {
    of_stage.assign(stages, static_cast<int>((layers + 2) / place.stages));
    --of_stage.front(), --of_stage.back();
    return of_stage;
  }
  std::vector<double> rank_load(static_cast<size_t>(place.ranks), 0), stage_load(stages, 0);
  stage_load[stages - 1] = head_layers;
  for (size_t c = 0; c < place.rank_of.size(); ++c)
    if (place.is_last(static_cast<int>(c))) rank_load[static_cast<size_t>(place.rank_of[c])] += head_layers;
  of_stage.assign(stages, 0);
  // With two routes a stage loads the ranks of both its copies.
  const auto load_with = [&](size_t s) {
    double load = 0;
    for (size_t c = s; c < place.rank_of.size(); c += stages)
      load = std::max(load, rank_load[static_cast<size_t>(place.rank_of[c])]);
    return std::tuple(load + weight[s], stage_load[s] + weight[s]);
  };
  for (int64_t i = 0; i < layers; ++i) {
    size_t best = 0;
    for (size_t s = 1; s < stages; ++s)
      if (load_with(s) <= load_with(best)) best = s;
    ++of_stage[best];
    stage_load[best] += weight[best];
    for (size_t c = best; c < place.rank_of.size(); c += stages)
      rank_load[static_cast<size_t>(place.rank_of[c])] += weight[best];
  }
  return of_stage;
}

Staged StageCosts::staged(const schedule::Placement& place, const std::vector<int>& way_of_stage,
                          std::vector<int> layers) const {
  Staged staged;
  const plan::Degrees& l = job_.mesh;
  const bool pairs = pipeline_of(job_)->pairs();
  const model::Shape& shape = job_.shape;
  const double mtp = job_.with_mtp ? d(shape.num_nextn_predict_layers) : 0;
  const Way& first = of(way_of_stage.front());
  // A hop that isn't overlapped waits in line.
  const bool overlapped = pairs || (job_.software.overlap_pp && place.stages > place.ranks);
  const double waits = overlapped ? overlapped_hop_s_ : hop_s_;
  staged.layers = std::move(layers);
  staged.times.hop = hop_s_;
  staged.times.pair = pairs ? 1 + first.mean.paired_exchange() / first.mean.sum() : 1;
  const int64_t leading_dense = shape.interleaves() ? 0 : shape.dense_blocks();
  int64_t at = 0;
  staged.fixed_bytes.assign(static_cast<size_t>(place.ranks), first.memory.mean.gathered);
  staged.working_bytes.assign(static_cast<size_t>(place.ranks), 0);
  staged.host_bytes.assign(static_cast<size_t>(place.ranks), 0);
  for (int s = 0; s < place.stages; ++s) {
    const Way& way = of(way_of_stage[s]);
    const MemoryParts& memory = way.memory;
    const int count = staged.layers[s];
    const double n_dense = d(std::clamp<int64_t>(leading_dense - at, 0, count)), n_moe = count - n_dense;
    at += count;
    LayerTimes t = way.dense.scaled(n_dense);
    t += way.moe.scaled(n_moe);
    Work work = way.dense_work.scaled(n_dense);
    work += way.moe_work.scaled(n_moe);
    double kept = n_dense * memory.dense.kept + n_moe * memory.moe.kept;
    // With two routes a rank has two stages, whose states it shares with the rank of their other copies.
    double fixed = (n_dense * memory.dense.fixed + n_moe * memory.moe.fixed) / place.routes;
    double hosted = (n_dense * memory.dense.hosted + n_moe * memory.moe.hosted) / place.routes;
    double working = s == place.stages - 1 ? memory.head_working : memory.working;
    if (s == 0) {
      t.forward += way.embedding_copies_s;
      work.traffic += way.embedding_copies_s;
      fixed += memory.embedding_fixed;
      hosted += memory.embedding_hosted;
      working += memory.embedding_working;
    }
    if (s == place.stages - 1) {
      hosted += memory.head_hosted + mtp * memory.mean.hosted;
      t += way.tail;
      work += way.tail_work;
      kept += mtp * memory.mean.kept;
      fixed += memory.head_fixed + mtp * memory.mean.fixed_once +
               (shape.tie_word_embeddings && l.pp > 1 ? memory.embedding_fixed : 0);
    }
    Waterfall& time = staged.time.emplace_back();
    time.products = work.products, time.attention = work.attention, time.traffic = work.traffic;
    time.tensor = work.tensor, time.exchange = work.exchange, time.context = work.context, time.data = work.data;
    time.launches = std::max(0.0, t.sum() - work.device_s());
    time.pipeline = 2 * waits;
    staged.times.stages.push_back({t.forward + waits, t.input_grad + waits, t.weight_grad, t.exchange});
    staged.stage_bytes.push_back({(1 - kKeptForWeights) * kept, kKeptForWeights * kept});
    for (int c = s; c < static_cast<int>(place.rank_of.size()); c += place.stages) {
      const auto r = static_cast<size_t>(place.rank_of[c]);
      staged.fixed_bytes[r] += fixed;
      staged.host_bytes[r] += hosted;
      staged.working_bytes[r] = std::max(staged.working_bytes[r], working);
    }
  }
  return staged;
}

Staged stage_job(const Job& j, const Behaviour& b, const schedule::Placement& place) {
  const StageCosts costs(j, b, {{j.recompute, j.software.offload_activations}});
  const std::vector<int> alike(static_cast<size_t>(place.stages), 0);
  return costs.staged(place, alike, costs.spread(place, alike));
}

Staged stage_job(const Job& job, const Behaviour& behaviour, const schedule::Placement& placement,
                 const std::vector<Keeping>& keeping, const std::vector<int>& layers) {
  std::vector<Keeping> ways;
  std::vector<int> way_of_stage;
  for (const Keeping& each : keeping) {
    const auto found = std::find(ways.begin(), ways.end(), each);
    way_of_stage.push_back(static_cast<int>(found - ways.begin()));
    if (found == ways.end()) ways.push_back(each);
  }
  return StageCosts(job, behaviour, ways).staged(placement, way_of_stage, layers);
}

PreparedSchedule::PreparedSchedule(const Job& j)
    : schedule(pipeline_of(j)->make(pipeline_size(j))),
      links(schedule::links_of(schedule)),
      order(schedule::running_order(schedule, links)) {}

std::string PreparedSchedule::key(const Job& j) {
  return fmt::format("{} {} {} {}", pipeline_of(j)->name(), j.mesh.pp, j.chunks, microbatches(j));
}

namespace {
void add_bytes(const Job& j, const Staged& staged, const std::vector<schedule::Peak>& peaks, Exact& e) {
  for (size_t r = 0; r < peaks.size(); ++r)
    e.rank_peak_bytes.push_back((peaks[r].bytes + staged.fixed_bytes[r] + staged.working_bytes[r]) *
                                    j.software.reserve +
                                j.software.context_bytes);
  e.peak_bytes = *std::max_element(e.rank_peak_bytes.begin(), e.rank_peak_bytes.end());
  e.host_bytes = *std::max_element(staged.host_bytes.begin(), staged.host_bytes.end());
}
}  // namespace

Exact exact_of(const Job& j, const Behaviour& b) { return exact_of(j, b, PreparedSchedule(j)); }

Exact exact_of(const Job& j, const Behaviour& b, const PreparedSchedule& prepared) {
  return exact_of(j, b, prepared, stage_job(j, b, prepared.schedule.placement));
}

Exact exact_of(const Job& j, const Behaviour& b, const PreparedSchedule& prepared, const Staged& staged) {
  const schedule::Schedule& schedule = prepared.schedule;
  return exact_of(j, b, schedule, staged,
                  schedule::timing_of(schedule, staged.times, prepared.links, prepared.order),
                  schedule::peaks_of(schedule, staged.stage_bytes));
}

Exact exact_of(const Job& j, const Behaviour& b, const schedule::Schedule& schedule, const Staged& staged,
               const schedule::Timing& timing, const std::vector<schedule::Peak>& peaks) {
  const Estimate closed = estimate(j, b);
  if (!closed.reason.empty()) config_error("search: no step to time: {}", closed.reason);
  Exact e;
  e.step_s = (timing.makespan + closed.beside_s) * (1 + b.jitter * std::log2(std::max(1.0, j.mesh.ranks() / 8.0)));
  e.time = waterfall_of(closed, b, schedule, staged, timing, e.step_s);
  e.exposed_s = e.time.communication();
  e.layers = staged.layers;
  add_bytes(j, staged, peaks, e);
  return e;
}

std::optional<Exact> exact_within(const Job& j, const Behaviour& b, const PreparedSchedule& prepared,
                                  double memory_bytes) {
  const Staged staged = stage_job(j, b, prepared.schedule.placement);
  Exact bytes;  // without activations, then with them: they take a walk over all actions
  add_bytes(j, staged, std::vector<schedule::Peak>(staged.fixed_bytes.size()), bytes);
  if (!fits(bytes, j, memory_bytes)) return std::nullopt;
  const std::vector<schedule::Peak> peaks = schedule::peaks_of(prepared.schedule, staged.stage_bytes);
  bytes = {};
  add_bytes(j, staged, peaks, bytes);
  if (!fits(bytes, j, memory_bytes)) return std::nullopt;
  return exact_of(j, b, prepared.schedule, staged,
                  schedule::timing_of(prepared.schedule, staged.times, prepared.links, prepared.order), peaks);
}

bool fits(const Exact& exact, const Job& job, double memory_bytes) {
  return exact.peak_bytes <= memory_bytes && exact.host_bytes <= usable_host_bytes(job.device);
}

}  // namespace heddle::search
