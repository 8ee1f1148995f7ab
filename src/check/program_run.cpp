#include "check/program_run.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/config/families/family.h"
#include "heddle/model/parameter_layout.h"
#include "heddle/plan/mesh.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/mesh_communicators.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/parameters.h"
#include "heddle/train/released_model.h"
#include "heddle/train/step/batch.h"

namespace heddle::check {

namespace {

constexpr const char* kBackend = "reference";
constexpr int64_t kLeastArena = int64_t{1} << 22;
constexpr int64_t kMostLayers = 256;
constexpr int64_t kMostWeights = int64_t{1} << 26;  // of a model that is run in fp64, some copies of it at once

double number(const device::TensorView& view, int64_t i) {
  switch (view.dtype) {
    case Dtype::f64: return view.as<double>()[i];
    case Dtype::f32: return view.as<float>()[i];
    case Dtype::bf16: return view.as<bf16>()[i];
    default: return static_cast<double>(view.as<int32_t>()[i]);
  }
}

bool is_float(const device::TensorView& view) {
  return view.layout == ir::Layout::rows &&
         (view.dtype == Dtype::f64 || view.dtype == Dtype::f32 || view.dtype == Dtype::bf16);
}

void set(const device::TensorView& view, int64_t i, double value) {
  switch (view.dtype) {
    case Dtype::f64: view.as<double>()[i] = value; break;
    case Dtype::f32: view.as<float>()[i] = static_cast<float>(value); break;
    case Dtype::u8: view.as<uint8_t>()[i] = static_cast<uint8_t>(value); break;
    default: view.as<bf16>()[i] = static_cast<float>(value);
  }
}

Captured captured(const device::TensorView& view) {
  Captured all;
  for (int d = 0; d < view.rank; ++d) all.dims.push_back(view.dims[static_cast<size_t>(d)]);
  all.values.resize(static_cast<size_t>(view.elements()));
  for (int64_t i = 0; i < view.elements(); ++i) all.values[static_cast<size_t>(i)] = number(view, i);
  return all;
}

// The standing numbers that a listing takes and no batch gives: no rate moves a weight here.
void set_rates(device::Inputs& inputs, const ir::Listing& listing) {
  if (listing.find_input("hyper") != nullptr) inputs.set("hyper", std::array{0.0, 1.0, 1.0, 0.0});
}

class Rank {
 public:
  Rank(const model::ModelConfig& model, const plan::Plan& plan, const plan::Lowered& lowered, comm::World& world,
       const RunRequest& request)
      : model_(model),
        plan_(plan),
        lowered_(lowered),
        request_(request),
        mesh_(plan.mesh),
        rank_(world.rank()),
        communicators_(world, lowered.program, mesh_) {
    runtime::ExecutorOptions options;
    options.rank = rank_;
    options.place = mesh_.at(rank_);
    options.backend = kBackend;
    options.capacity_bytes = kLeastArena + 2 * runtime::rough_arena_bytes(lowered.program, rank_, kBackend,
                                                                          {.crowding = 16, .whole = true});
    options.limit_bytes = 8 * options.capacity_bytes;
    options.communicators = communicators_.by_channel();
    executor_ = std::make_unique<runtime::Executor>(lowered.program, options);
  }

  void fill(const Weights& weights) {
    for (const train::StateTensor& tensor : train::state_tensors(lowered_, *executor_, mesh_, rank_)) {
      if (!tensor.is_here()) continue;
      const train::StateElements held(tensor);
      const device::TensorView& view = held.view();
      for (int64_t i = 0; i < view.elements(); ++i) set(view, i, 0);
      if (tensor.is_master) {
        const Numbers& whole = weights.at(tensor.parameter->name);
        for (const model::Extent& run : train::held_extents(tensor, lowered_, mesh_, rank_)) {
          for (int64_t i = 0; i < run.count; ++i)
            set(view, run.local + i, whole.at(static_cast<size_t>(run.whole + i)));
        }
      }
      held.put();
    }
    train::fill_rope_table(model_, lowered_, *executor_, mesh_, rank_);
    executor_->make_weights();
  }

  RankValues run(const train::Sequences& sequences) {
    const ir::Listing& listing = executor_->listing();
    find_sums(listing);
    device::Inputs inputs = train::batch_of(sequences, plan_.microbatches, model_, plan_, listing, mesh_.at(rank_));
    set_rates(inputs, listing);
    executor_->run_step(inputs, [&](const ir::Issue& issue, const device::KernelCall& call) { look(issue, call); });
    for (const ir::Value& value : listing.values) {
      if (value.role != ir::Role::statistic) continue;
      const device::TensorView view = executor_->view(listing_index(), listing.find(value.name));
      if (is_float(view)) found_.statistics[value.name] = captured(view).values;
    }
    return std::move(found_);
  }

 private:
  int listing_index() const { return lowered_.program.listing_of(rank_, ir::Purpose::train); }

  // The parameter that each accumulator is of, and its place in the whole tensor.
  struct Sum {
    const model::Parameter* parameter = nullptr;
    std::vector<model::Extent> runs;
    int64_t whole = 0;
    Numbers before;  // what it held when the last microbatch had ended
  };
  void find_sums(const ir::Listing& listing) {
    for (const model::Parameter& p : lowered_.parameters[static_cast<size_t>(listing_index())]) {
      const auto sums = listing.accumulators.find(p.value);
      if (sums == listing.accumulators.end()) continue;
      std::vector<int64_t> dims;
      for (const ir::Dim& dim : listing.value(p.value).shape) dims.push_back(dim.count);
      int64_t whole = 1;
      for (const int64_t dim : model::whole_dims(p, dims, mesh_.at(rank_))) whole *= dim;
      for (const ir::ValueId id : sums->second)
        sums_[id] = {&p, model::extents_of(p, dims, mesh_.at(rank_)), whole, {}};
    }
  }

  void look(const ir::Issue& issue, const device::KernelCall& call) {
    const ir::Listing& listing = lowered_.program.listings[static_cast<size_t>(issue.listing)];
    const ir::Op& op = *issue.op;
    if (ir::once_a_step(op.phase)) return;
    if (request_.noise > 0 && !op.def->loads) blur(op, call, issue);
    for (size_t i = 0; i < op.out.size(); ++i) {
      if (op.out[i] == ir::none || !is_float(call.out[i])) continue;
      const std::string& name = listing.value(op.out[i]).name;
      if (request_.after && op.phase == ir::Phase::F && request_.changed(name)) {
        Captured out = captured(call.out[i]);
        request_.after(name, issue.microbatch, mesh_.at(rank_), out);
        for (int64_t k = 0; k < std::ssize(out.values); ++k)
          set(call.out[i], k, out.values[static_cast<size_t>(k)]);
      }
      if (request_.wanted && request_.wanted(name)) found_.values[{name, issue.microbatch}] = captured(call.out[i]);
    }
    if (!request_.keeps_gradients) return;
    for (size_t i = 0; i < op.updates.size(); ++i) {
      const auto sum = sums_.find(listing.base(op.updates[i]));
      if (sum == sums_.end()) continue;
      keep_sum(sum->second, issue.microbatch, executor_->view(issue.listing, sum->first), call.overwrite);
    }
  }

  // An op has added what the sum holds beyond what it held before.
  void keep_sum(Sum& sum, int microbatch, const device::TensorView& view, bool fresh) {
    Numbers now = captured(view).values;
    if (sum.before.empty() || fresh) sum.before.assign(now.size(), 0.0);
    Numbers& whole = found_.gradients[{sum.parameter->name, microbatch}];
    whole.resize(static_cast<size_t>(sum.whole), 0.0);
    for (const model::Extent& run : sum.runs) {
      for (int64_t i = 0; i < run.count; ++i) {
        const auto local = static_cast<size_t>(run.local + i);
        whole[static_cast<size_t>(run.whole + i)] += now[local] - sum.before[local];
      }
    }
    sum.before = std::move(now);
  }

  void blur(const ir::Op& op, const device::KernelCall& call, const ir::Issue& issue) {
    const RandomKey key = RandomKey(request_.seed)
                              .with(static_cast<uint64_t>(issue.op_index))
                              .with(static_cast<uint64_t>(issue.microbatch + 1));
    uint64_t at = 0;
    const auto off = [&](const device::TensorView& view, double by) {
      for (int64_t i = 0; i < view.elements() && by > 0; ++i) {
        const double unit = static_cast<double>(key.bits(at++) >> 11) * 0x1p-52 - 1;  // in [−1, 1)
        set(view, i, number(view, i) * (1 + by * unit));
      }
    };
    const bool of_loss = op.def->is_loss;
    for (size_t i = 0; i < op.out.size(); ++i) {
      if (op.out[i] != ir::none && is_float(call.out[i]))
        off(call.out[i], of_loss ? request_.noise_of_losses : request_.noise);
    }
    for (size_t i = 0; i < op.updates.size(); ++i) {
      if (sums_.contains(op.updates[i])) off(call.updates[i], request_.noise_of_sums);
    }
  }

  const model::ModelConfig& model_;
  const plan::Plan& plan_;
  const plan::Lowered& lowered_;
  const RunRequest& request_;
  plan::Mesh mesh_;
  int rank_;
  runtime::MeshCommunicators communicators_;
  std::unique_ptr<runtime::Executor> executor_;
  std::map<ir::ValueId, Sum> sums_;
  RankValues found_;
};

}  // namespace

ReleasedNames::ReleasedNames(const model::ModelConfig& model) {
  if (model.num_hidden_layers > kMostLayers)
    config_error("model: {} layers; up to {} are accepted, for the reference runs in fp64 on one CPU",
                 model.num_hidden_layers, kMostLayers);
  const std::vector<train::ParameterTensor> parameters = train::masters_of_model(model);
  double weights = 0;
  for (const train::ParameterTensor& p : parameters) {
    sizes_[p.parameter.name] = p.tensor.elements();
    weights += static_cast<double>(p.tensor.elements());
  }
  if (weights > static_cast<double>(kMostWeights))
    config_error(
        "model: {:.0f} weights; up to {} are accepted, for the reference runs in fp64 on one CPU: dump fewer "
        "layers, "
        "and narrower ones",
        weights, kMostWeights);
  const config::Family& family = config::family_of(model);
  for (const train::ReleasedTensor& released :
       train::released_tensors(family, train::released_slices(parameters))) {
    Tensor& tensor = tensors_[released.name];
    tensor.dims = released.shape;
    for (const auto& [slice, place] : released.parts) {
      Piece piece{parameters[slice.parameter].parameter.name, slice.first, slice.count, slice.columns(), {}};
      for (int64_t i = 0; i < slice.count; ++i) piece.at.push_back(place.at(i, slice.columns()));
      tensor.pieces.push_back(std::move(piece));
    }
  }
}

Weights ReleasedNames::joined(const std::map<std::string, std::pair<std::vector<int64_t>, Numbers>>& released,
                              const std::string& place) const {
  Weights parameters;
  for (const auto& [name, size] : sizes_) parameters[name].resize(static_cast<size_t>(size), 0.0);
  for (const auto& [name, given] : released) {
    if (!tensors_.contains(name))
      config_error("{}: the model has no weight '{}'{}", place, formats::printable(name),
                   did_you_mean(name, names()));
  }
  for (const auto& [name, tensor] : tensors_) {
    const auto given = released.find(name);
    if (given == released.end()) config_error("{}: the model's weight {} is missing", place, name);
    if (given->second.first != tensor.dims)
      config_error("{}: {} is [{}], the model's is [{}]", place, name, fmt::join(given->second.first, ", "),
                   fmt::join(tensor.dims, ", "));
    for (const Piece& piece : tensor.pieces) {
      Numbers& into = parameters[piece.parameter];
      for (int64_t i = 0; i < piece.count; ++i)
        into[static_cast<size_t>(piece.first + i)] =
            given->second.second[static_cast<size_t>(piece.at[static_cast<size_t>(i)])];
    }
  }
  return parameters;
}

Numbers ReleasedNames::parted(const std::string& name, const Weights& parameters) const {
  const Tensor& tensor = tensors_.at(name);
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims) elements *= dim;
  Numbers values(static_cast<size_t>(elements), 0.0);
  for (const Piece& piece : tensor.pieces) {
    const auto from = parameters.find(piece.parameter);
    if (from == parameters.end()) return {};
    for (int64_t i = 0; i < piece.count; ++i)
      values[static_cast<size_t>(piece.at[static_cast<size_t>(i)])] =
          from->second[static_cast<size_t>(piece.first + i)];
  }
  return values;
}

const std::vector<int64_t>* ReleasedNames::dims(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second.dims;
}

std::vector<std::string> ReleasedNames::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(name);
  return all;
}

std::vector<std::string> ReleasedNames::parameters_of(const std::string& name) const {
  std::vector<std::string> all;
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return all;
  for (const Piece& piece : at->second.pieces) {
    if (std::find(all.begin(), all.end(), piece.parameter) == all.end()) all.push_back(piece.parameter);
  }
  return all;
}

plan::Plan plan_of(const Layout& layout, bool on_one_rank) {
  plan::Plan plan;
  if (!on_one_rank) plan.mesh = layout.mesh;
  plan.microbatches = on_one_rank ? layout.microbatches * layout.mesh.dp : layout.microbatches;
  plan.sequences = layout.sequences;
  plan.sequence_length = layout.sequence_length;
  plan.dtype = Dtype::f64;
  plan.weighs_labels = layout.loss == LossMean::microbatches;
  plan.fusions.clear();
  plan.parallel.weave = plan::Weave::off;
  plan.update.clip_norm = 0;
  return plan;
}

std::vector<RankValues> run_program(const model::ModelConfig& model, const plan::Plan& plan, const Weights& weights,
                                    const train::Sequences& sequences, const RunRequest& request) {
  plan::Lowered lowered = plan::lower(model, plan);
  if (request.edit) request.edit(lowered);
  std::vector<RankValues> all(static_cast<size_t>(plan.ranks()));
  comm::run_on_threads(plan.ranks(), [&](comm::World& world) {
    Rank rank(model, plan, lowered, world, request);
    rank.fill(weights);
    all[static_cast<size_t>(world.rank())] = rank.run(sequences);
  });
  return all;
}

}  // namespace heddle::check
