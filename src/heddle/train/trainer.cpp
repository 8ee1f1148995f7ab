#include "heddle/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "heddle/backends/backend.h"
#include "heddle/comm/device_world.h"
#include "heddle/config/exact_layout.h"
#include "heddle/model/loss_scale.h"

namespace heddle::train {

namespace {

bool is_finite(const device::TensorView& view) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    switch (view.dtype) {
      case Dtype::f64:
        if (!std::isfinite(view.as<double>()[i])) return false;
        break;
      case Dtype::f32:
        if (!std::isfinite(view.as<float>()[i])) return false;
        break;
      case Dtype::bf16:
        if (!std::isfinite(static_cast<float>(view.as<bf16>()[i]))) return false;
        break;
      default: return true;
    }
  }
  return true;
}

double read(const device::TensorView& view, int64_t i) {
  switch (view.dtype) {
    case Dtype::f64: return view.as<double>()[i];
    case Dtype::f32: return view.as<float>()[i];
    default: internal_error("a statistic in {}", name_of(view.dtype));
  }
}

// The statistics of some stages side by side, as one row of numbers that ranks can add; those of one name are one.
class Statistics {
 public:
  Statistics(const ir::StepProgram& program, int first_stage, int stages) {
    for (int s = first_stage; s < first_stage + stages; ++s) {
      const ir::Stage& stage = program.stages[static_cast<size_t>(s)];
      for (size_t v = 0; v < stage.values.size(); ++v) {
        if (stage.values[v].role != ir::Role::statistic) continue;
        const auto id = static_cast<ir::ValueId>(v);
        const auto size = static_cast<size_t>(stage.elements(id, ir::FixedRows()));
        const std::string& name = stage.values[v].name;
        const auto [at, fresh] = first_of_.try_emplace(name, numbers_.size());
        places_.push_back({name, s, id, at->second, size});
        if (fresh) numbers_.resize(numbers_.size() + size, 0);
      }
    }
  }

  struct Place {
    std::string name;
    int stage;
    ir::ValueId value;
    size_t first, size;
  };
  /// Each name once, with its first place in the row and its size.
  std::vector<Place> places() const {
    std::vector<Place> found;
    std::set<std::string> seen;
    for (const Place& place : places_) {
      if (seen.insert(place.name).second) found.push_back(place);
    }
    return found;
  }

  /// Takes what this rank has of one stage.
  void take(const runtime::Executor& executor, int stage) {
    for (const Place& place : places_) {
      if (place.stage != stage) continue;
      const device::TensorView view = executor.view(place.stage, place.value);
      for (size_t i = 0; i < place.size; ++i) numbers_[place.first + i] = read(view, static_cast<int64_t>(i));
    }
  }

  /// Room for one number more; returns its index.
  size_t add(double value) {
    numbers_.push_back(value);
    return numbers_.size() - 1;
  }
  std::span<double> numbers() { return numbers_; }
  double at(size_t i) const { return numbers_[i]; }

 private:
  std::vector<Place> places_;
  std::map<std::string, size_t> first_of_;
  std::vector<double> numbers_;
};

// When, within a step, a value came to be: causes come before effects, on whichever rank.
struct Moment {
  int64_t microbatch = 0, phase = 0, stage = 0, op = 0, rank = 0;
  auto operator<=>(const Moment&) const = default;
};

std::vector<int> nodes_of(const comm::World* world) {
  std::vector<int> nodes;
  for (int r = 0; world != nullptr && r < world->size(); ++r) nodes.push_back(world->node_of(r));
  return nodes;
}

TrainerOptions completed(TrainerOptions options) {
  options.plan = as_trained(std::move(options.plan), options.backend);
  return options;
}

}  // namespace

plan::Plan as_trained(plan::Plan plan, const std::string& backend) {
  plan.evaluates = true;
  plan.predicts = true;
  plan.packed_bytes = backends::named(backend).packed_bytes;
  return plan;
}

double StepResult::imbalance() const {
  double worst = 1;
  for (const std::vector<double>& load : load_LE) {
    double sum = 0, most = 0;
    for (const double rows : load) {
      sum += rows;
      most = std::max(most, rows);
    }
    if (sum > 0) worst = std::max(worst, most * static_cast<double>(load.size()) / sum);
  }
  return worst;
}

Trainer::Trainer(TrainerOptions options, comm::World* world)
    : options_(completed(std::move(options))),
      mesh_(options_.plan.mesh),
      lowered_(plan::lower(options_.model, options_.plan)),
      ranks_(world) {
  runtime::ExecutorOptions executor;
  executor.rank = ranks_.rank();
  executor.backend = options_.backend;
  device_ = backends::named(options_.backend).open(ranks_.rank());
  device_->set_graphs(options_.plan.device.graphs);
  executor.device = device_.get();
  executor.threads = options_.threads;
  executor.capacity_bytes = options_.memory_bytes;
  executor.limit_bytes = options_.memory_limit_bytes;
  if (world != nullptr) {
    if (!device_->shares_memory()) device_world_ = comm::device_world(*world);
    communicators_ = std::make_unique<runtime::MeshCommunicators>(device_world_ ? *device_world_ : *world,
                                                                  lowered_.program, mesh_);
    executor.communicators = communicators_->by_channel();
  } else if (mesh_.ranks() > 1) {
    config_error("mesh: {} ranks are needed, one is running", mesh_.ranks());
  }
  if (options_.plan.exact_sums) {
    const std::string why = config::why_not_exact(options_.model, options_.plan.mesh, nodes_of(world));
    if (!why.empty()) config_error("train.exact_sums does not hold with {}", why);
  }
  executor.place = mesh_.at(ranks_.rank());
  executor_ = std::make_unique<runtime::Executor>(lowered_.program, executor);
  count_model();
}

void Trainer::count_model() {
  plan::Plan one = options_.plan.on_one_rank();
  one.microbatches = 1;
  one.evaluates = one.predicts = false;
  const plan::Lowered lowered = plan::lower(options_.model, one);
  const ir::Stage& stage = lowered.program.stages[0];
  for (const ir::Op& op : stage.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : options_.plan.microbatches * options_.plan.mesh.dp;
    flops_per_step_ += times * op.def->cost(stage, op, ir::FixedRows()).flops;
  }
  parameter_count_ = model::count_parameters(options_.model, lowered.parameters[0], stage);
}

Trainer::~Trainer() = default;

void Trainer::initialise() {
  train::initialise(options_.model, lowered_, *executor_, options_.seed, mesh_, ranks_.rank());
  done_ = {};
}

int Trainer::stage() const { return mesh_.at(ranks_.rank()).at(ir::Axis::pp); }

std::vector<StateTensor> Trainer::state() { return state_tensors(lowered_, *executor_, mesh_, ranks_.rank()); }

std::vector<model::Run> Trainer::held_runs(const StateTensor& tensor) const {
  return train::held_runs(tensor, lowered_, mesh_, ranks_.rank());
}

int64_t Trainer::sequence_tokens() const {
  return options_.plan.sequence_length + 1 + options_.model.num_nextn_predict_layers;
}

int64_t Trainer::sequences_per_step() const {
  return options_.plan.microbatches * options_.plan.sequences * options_.plan.mesh.dp;
}

device::Batch Trainer::batch_of(const std::vector<std::vector<int32_t>>& sequences, int microbatches) const {
  const int64_t width = sequence_tokens(), each = options_.plan.sequences;
  const int64_t depths = options_.model.num_nextn_predict_layers;
  device::Batch batch;
  batch.microbatches.resize(static_cast<size_t>(microbatches));
  const int64_t data_ranks = options_.plan.mesh.dp, data_rank = mesh_.at(ranks_.rank()).at(ir::Axis::dp);
  for (int64_t m = 0; m < microbatches; ++m) {
    std::vector<int32_t>& tokens = batch.microbatches[static_cast<size_t>(m)].tokens;
    for (int64_t j = 0; j < each; ++j) {
      const int64_t i = (m * data_ranks + data_rank) * each + j;
      if (i >= std::ssize(sequences)) {  // padding of a last, smaller batch
        tokens.insert(tokens.end(), static_cast<size_t>(width), -1);
        continue;
      }
      const std::vector<int32_t>& sequence = sequences[static_cast<size_t>(i)];
      HEDDLE_CHECK(std::ssize(sequence) == width, "a sequence has {} ids, {} are expected", sequence.size(), width);
      tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    }
  }
  // Over the whole batch, on every rank.
  std::vector<double> labels(static_cast<size_t>(depths) + 1, 0);
  for (const std::vector<int32_t>& sequence : sequences) {
    for (int64_t d = 0; d <= depths; ++d) {
      for (int64_t t = 0; t < options_.plan.sequence_length; ++t) {
        labels[static_cast<size_t>(d)] += sequence[static_cast<size_t>(t + d + 1)] >= 0;
      }
    }
  }
  const auto count = static_cast<double>(sequences.size());
  const auto one_over = [](double x) { return x > 0 ? 1 / x : 0; };
  batch.scales = {one_over(labels[0]), one_over(count),
                  one_over(count * static_cast<double>(options_.plan.sequence_length))};
  for (int64_t d = 1; d <= depths; ++d) {
    batch.scales.push_back(options_.model.mtp_loss_weight / static_cast<double>(depths) *
                           one_over(labels[static_cast<size_t>(d)]));
  }
  return batch;
}

StepResult Trainer::step(const std::vector<std::vector<int32_t>>& sequences) {
  HEDDLE_CHECK(std::ssize(sequences) == sequences_per_step(), "a step takes {} sequences, {} given",
               sequences_per_step(), sequences.size());
  device::Batch batch = batch_of(sequences, options_.plan.microbatches);
  const passes::Optimizer& update = options_.plan.update;
  const double rate = options_.learning_rate.at(options_.length, done_);
  const auto t = static_cast<double>(done_.steps + 1);
  batch.hyper = {rate, 1 - std::pow(update.beta1, t), 1 - std::pow(update.beta2, t)};
  batch.bias_rate = config::BiasRate{options_.model.bias_update_rate}.at(
      options_.length, done_, options_.learning_rate.left(options_.length, done_));

  const auto start = std::chrono::steady_clock::now();
  executor_->run_step(batch);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  StepResult result;
  result.flops = flops_per_step_;
  result.learning_rate = rate;
  result.bias_rate = batch.bias_rate;
  result.tokens = sequences_per_step() * options_.plan.sequence_length;

  Statistics statistics(lowered_.program, 0, options_.plan.mesh.pp);
  statistics.take(*executor_, stage());
  const size_t own = statistics.numbers().size();
  const ir::Storage& storage = executor_->walk().storage();
  for (int r = 0; r < ranks_.size(); ++r) {  // a place for each rank
    const bool mine = r == ranks_.rank();
    statistics.add(mine ? seconds : 0);
    statistics.add(mine ? static_cast<double>(storage.peak_live_bytes()) : 0);
    statistics.add(mine ? static_cast<double>(storage.reserved_bytes()) : 0);
    statistics.add(mine ? static_cast<double>(storage.grown_bytes()) : 0);
  }
  ranks_.sum(statistics.numbers());
  for (int r = 0; r < ranks_.size(); ++r) {
    const size_t i = own + static_cast<size_t>(4 * r);
    result.seconds = std::max(result.seconds, statistics.at(i));
    result.peak_live_bytes = std::max(result.peak_live_bytes, static_cast<int64_t>(statistics.at(i + 1)));
    result.reserved_bytes = std::max(result.reserved_bytes, static_cast<int64_t>(statistics.at(i + 2)));
    const auto grown = static_cast<int64_t>(statistics.at(i + 3));
    if (grown <= result.grown_bytes) continue;
    result.grown_bytes = grown;
    result.grown_rank = r;
  }
  for (const Statistics::Place& place : statistics.places()) {
    const double value = statistics.at(place.first);
    if (place.name == "grad_norm") {  // the same on every rank
      result.gradient_norm = value / options_.plan.mesh.ranks();
    } else if (place.name == "loss.next_token") {
      result.next_token_loss = value * batch.scales[model::kScaleNextToken];
    } else if (place.name.starts_with("loss.sequence_aux.")) {
      result.sequence_aux_loss += value * batch.scales[model::kScaleSequenceAux];
    } else if (place.name.starts_with("loss.z.")) {
      result.z_loss += value * batch.scales[model::kScaleZ];
    } else if (place.name.starts_with("loss.depth.")) {
      const size_t depth = result.depth_losses.size();
      const double weight =
          options_.model.mtp_loss_weight / static_cast<double>(options_.model.num_nextn_predict_layers);
      const double scale = batch.scales[model::kScaleDepth + depth];
      result.depth_losses.push_back(weight == 0 ? 0 : value * scale / weight);
    } else if (place.name.starts_with("load.")) {
      const int layer = std::stoi(place.name.substr(5));
      const auto at = std::upper_bound(result.load_layers.begin(), result.load_layers.end(), layer);
      const auto first = statistics.numbers().begin() + static_cast<std::ptrdiff_t>(place.first);
      result.load_LE.emplace(result.load_LE.begin() + (at - result.load_layers.begin()), first,
                             first + static_cast<std::ptrdiff_t>(place.size));
      result.load_layers.insert(at, layer);
    }
  }
  // From sums that are the same on all ranks: all of them go on, or all of them look for the cause.
  if (!std::isfinite(result.next_token_loss) || !std::isfinite(result.gradient_norm))
    explain_not_finite(batch, result);
  ++done_.steps;
  done_.seconds += result.seconds;  // summed over ranks above: the same bits on all
  return result;
}

void Trainer::explain_not_finite(const device::Batch& batch, const StepResult& result) {
  constexpr int64_t kNever = int64_t{1} << 40;
  Moment first{kNever};
  std::string where;
  int64_t op = 0;
  executor_->run_step(batch, [&](const ir::Issue& issue, const device::KernelCall& call) {
    ++op;
    if (!where.empty()) return;
    const ir::Stage& text = lowered_.program.stages[static_cast<size_t>(issue.stage)];
    const auto look = [&](std::span<const device::TensorView> views, const std::vector<ir::ValueId>& ids) {
      for (size_t i = 0; i < views.size() && where.empty(); ++i) {
        if (views[i].data == nullptr || views[i].layout == ir::Layout::packed || is_finite(views[i])) continue;
        where = fmt::format("'{}' of {}{} (phase {}, microbatch {}{})", text.value(ids[i]).name, issue.op->kind(),
                            issue.op->layer >= 0 ? fmt::format(" in layer {}", issue.op->layer) : "",
                            ir::name_of(issue.op->phase), issue.microbatch,
                            ranks_.size() > 1 ? fmt::format(", rank {}", ranks_.rank()) : "");
        const ir::Phase phase = issue.op->phase;
        const bool once = ir::once_a_step(phase), forward = phase == ir::Phase::F;
        const int stage =
            lowered_.placement.stages_of(issue.stage).at(static_cast<size_t>(std::max(0, issue.op->chunk)));
        first = {!once                       ? issue.microbatch
                 : phase == ir::Phase::begin ? -1
                                             : kNever - 1,
                 forward ? 0 : 1, forward ? stage : -stage, op, ranks_.rank()};
      }
    };
    look(call.out, issue.op->out);
    look(call.updates, issue.op->updates);
  });
  std::vector<double> moments(static_cast<size_t>(ranks_.size()) * 5, 0);
  const std::array<int64_t, 5> own{first.microbatch, first.phase, first.stage, first.op, first.rank};
  std::copy(own.begin(), own.end(), moments.begin() + ranks_.rank() * 5);
  ranks_.sum(moments);
  const std::vector<std::string> places = ranks_.share(where);
  std::string found = "no single op; the sum over microbatches overflows";
  Moment earliest{kNever};
  for (size_t r = 0; r < places.size(); ++r) {
    const auto number = [&](size_t i) { return static_cast<int64_t>(moments[r * 5 + i]); };
    const Moment moment{number(0), number(1), number(2), number(3), number(4)};
    if (moment >= earliest) continue;
    earliest = moment;
    found = places[r];
  }
  throw Error(fmt::format("step {}: loss {}, gradient norm {}: the first value that is not finite is {}",
                          done_.steps + 1, result.next_token_loss, result.gradient_norm, found));
}

double Trainer::evaluate(const std::vector<std::vector<int32_t>>& sequences) {
  const plan::Degrees& mesh = options_.plan.mesh;
  const auto each = static_cast<size_t>(options_.plan.sequences * mesh.dp);
  std::array<double, 1> sum{0};
  double labels = 0;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    const device::Batch batch = batch_of(
        {sequences.begin() + static_cast<long>(first), sequences.begin() + static_cast<long>(first + count)}, 1);
    executor_->run_step(batch, ir::Purpose::evaluate);
    const int stage = lowered_.program.stage_of(ranks_.rank(), ir::Purpose::evaluate);
    const ir::ValueId loss = lowered_.program.stages[static_cast<size_t>(stage)].find("loss.next_token");
    if (loss != ir::none) sum[0] += read(executor_->view(stage, loss), 0);
    if (batch.scales[0] > 0) labels += 1 / batch.scales[0];
  }
  ranks_.sum(sum);
  return labels > 0 ? sum[0] / labels : 0;
}

std::vector<float> Trainer::next_logits(std::span<const int32_t> tokens) {
  const int64_t length = options_.plan.sequence_length;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  device::Batch batch;
  std::vector<int32_t>& row = batch.microbatches.emplace_back().tokens;
  row.assign(tokens.begin(), tokens.end());
  row.resize(static_cast<size_t>(length) + 1, -1);
  batch.scales.assign(model::kScaleDepth, 0);
  executor_->run_step(batch, ir::Purpose::predict);
  // Each column is taken from the one rank of the first copy that holds the token's position and this part of the
  // vocabulary.
  std::vector<double> all(static_cast<size_t>(options_.model.vocab_size), 0);
  const ir::Coordinates& place = mesh_.at(ranks_.rank());
  const int stage = lowered_.program.stage_of(ranks_.rank(), ir::Purpose::predict);
  const int cp = place.of(ir::Axis::cp);
  const ir::ValueId id = lowered_.program.stages[static_cast<size_t>(stage)].find("logits");
  if (id != ir::none && place.at(ir::Axis::dp) == 0) {
    const device::TensorView logits = executor_->view(stage, id);
    const int64_t part = logits.dim(1);
    for (int64_t j = 0; j < logits.dim(0); ++j) {
      if (ir::position(j, length, place.at(ir::Axis::cp), cp) != std::ssize(tokens) - 1) continue;
      for (int64_t v = 0; v < part; ++v) {
        all[static_cast<size_t>(place.at(ir::Axis::tp) * part + v)] = read(logits, j * part + v);
      }
    }
  }
  ranks_.sum(all);
  return {all.begin(), all.end()};
}

}  // namespace heddle::train
