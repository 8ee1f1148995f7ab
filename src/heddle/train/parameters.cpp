#include "heddle/train/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "heddle/base/random.h"
#include "heddle/base/split_float.h"
#include "heddle/model/rope_table.h"

namespace heddle::train {

namespace {

using device::TensorView;

std::vector<int64_t> dims_of(const ir::Value& value) {
  std::vector<int64_t> dims;
  for (const ir::Dim& dim : value.shape) dims.push_back(dim.count);
  return dims;
}

// value(i) into element i − first + at.
template <class Value>
void fill(const TensorView& view, int64_t at, int64_t first, int64_t count, Value value) {
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t i = 0; i < count; ++i) {
    if (view.dtype == Dtype::f64) {
      view.as<double>()[at + i] = value(first + i);
    } else if (view.dtype == Dtype::bf16) {  // frozen
      view.as<bf16>()[at + i] = bf16(static_cast<float>(value(first + i)));
    } else {
      view.as<float>()[at + i] = static_cast<float>(value(first + i));
    }
  }
}

// What the pipeline rank of a rank holds of a tensor of the state.
struct Held {
  const ir::Listing* listing = nullptr;
  const model::Parameter* parameter = nullptr;  // null: nothing
  ir::ValueId value = ir::none;
  /// Whether it is cut into runs among the ranks that hold copies of the parameter.
  bool is_shard() const { return listing->value(value).shape != listing->value(parameter->value).shape; }
};

// The master, or the half of it that its weight lacks, or the weight that is its own.
ir::ValueId master_of(const model::Parameter& p, const ir::Listing& listing) {
  if (const ir::ValueId rest = listing.find("rest." + p.name); rest != ir::none) return rest;
  const ir::ValueId master = listing.find("master." + p.name);
  return master == ir::none ? p.value : master;
}

using View = std::function<TensorView(int listing, ir::ValueId id)>;

StateTensor::Split split_of(const model::Parameter& p, const ir::Listing& listing, int index, const View& view) {
  const ir::ValueId run = listing.find("copy." + p.name);
  return {view(index, run == ir::none ? p.value : run), view(index, listing.find("rest." + p.name)),
          view(index, listing.find("v." + p.name))};
}

Held held_by(const StateTensor& tensor, const plan::Lowered& lowered, const plan::Mesh& mesh, int rank) {
  const auto at = static_cast<size_t>(mesh.at(rank).at(ir::Axis::pp));
  Held held{&lowered.program.listings[at]};
  for (const model::Parameter& p : lowered.parameters[at]) {
    if (p.name != tensor.parameter->name) continue;
    held.parameter = &p;
    held.value = tensor.is_master ? master_of(p, *held.listing) : held.listing->find(tensor.name);
  }
  return held;
}

// `view` gives what `rank` holds of a value.
std::vector<StateTensor> list_state(const plan::Lowered& lowered, const plan::Mesh& mesh, int rank,
                                    const View& view) {
  std::vector<StateTensor> tensors;
  std::map<std::string, size_t> by_name;
  for (size_t s = 0; s < lowered.parameters.size(); ++s) {
    const ir::Listing& listing = lowered.program.listings[s];
    const int index = static_cast<int>(s);
    const bool here = mesh.at(rank).at(ir::Axis::pp) == index;
    for (const model::Parameter& p : lowered.parameters[s]) {
      if (p.start == model::Parameter::Start::rope_table) continue;
      const std::vector<int64_t> shape = model::whole_dims(p, dims_of(listing.value(p.value)), mesh.at(rank));
      const auto add = [&](const std::string& name, ir::ValueId id, bool is_master, bool splits) {
        const auto [at, fresh] = by_name.try_emplace(name, tensors.size());
        const Dtype dtype = splits ? Dtype::f32 : listing.value(id).dtype;
        if (fresh) tensors.push_back({name, {}, {}, &p, is_master, dtype, shape});
        if (!here) return;
        if (splits) {
          tensors[at->second].split = split_of(p, listing, index, view);
        } else {
          tensors[at->second].view = view(index, id);
        }
      };
      const bool splits = listing.find("rest." + p.name) != ir::none;
      add(p.name, master_of(p, listing), true, splits);
      for (const char* beside : {"m.", "v.", "average."}) {
        const ir::ValueId id = listing.find(beside + p.name);
        if (id != ir::none) add(beside + p.name, id, false, splits && *beside == 'v');
      }
    }
  }
  return tensors;
}

}  // namespace

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, runtime::Executor& executor,
                                       const plan::Mesh& mesh, int rank) {
  return list_state(lowered, mesh, rank, [&](int listing, ir::ValueId id) { return executor.view(listing, id); });
}

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered) {
  return list_state(lowered, plan::Mesh({}), 0, [](int, ir::ValueId) { return TensorView(); });
}

std::vector<model::Extent> held_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                        const plan::Mesh& mesh, int rank) {
  const Held held = held_by(tensor, lowered, mesh, rank);
  if (held.parameter == nullptr) return {};
  const ir::Listing& listing = *held.listing;
  const model::Parameter& p = *held.parameter;
  std::vector<model::Extent> extents = model::extents_of(p, dims_of(listing.value(p.value)), mesh.at(rank));
  if (!held.is_shard()) return extents;
  const std::vector<int> group = mesh.group(p.copies, rank);
  const int64_t at = std::find(group.begin(), group.end(), rank) - group.begin();
  const int64_t each = listing.value(held.value).shape.at(0).count;
  return model::extents_within(extents, at * each, each);
}

std::vector<model::Extent> owned_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                         const plan::Mesh& mesh, int rank) {
  const Held held = held_by(tensor, lowered, mesh, rank);
  if (held.parameter == nullptr) return {};
  if (!held.is_shard() && mesh.group(held.parameter->copies, rank)[0] != rank) return {};
  return held_extents(tensor, lowered, mesh, rank);
}

void fill_rope_table(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                     const plan::Mesh& mesh, int rank) {
  const ir::Coordinates& place = mesh.at(rank);
  const int cp = place.of(ir::Axis::cp);
  for (const int s : lowered.program.listings_of(rank)) {
    const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(s)];
    const ir::ValueId id = listing.find("rope_table");
    if (id == ir::none || listing.value(id).shared_with >= 0) continue;
    const TensorView view = executor.view(s, id);
    const int64_t length = view.dim(0) * cp, width = view.dim(1);
    const std::vector<double> table = model::rope_table(config, length);
    for (int64_t j = 0; j < view.dim(0); ++j) {
      const int64_t first = ir::position(j, length, place.at(ir::Axis::cp), cp) * width;
      fill(view, j * width, first, width, [&](int64_t i) { return table[static_cast<size_t>(i)]; });
    }
  }
}

StateElements::StateElements(const StateTensor& tensor) : tensor_(tensor), view_(tensor.view) {
  HEDDLE_CHECK(tensor.is_here(), "'{}' is not here", tensor.name);
  if (!tensor.split) return;
  const StateTensor::Split& split = *tensor.split;
  const int64_t count = split.low.elements();
  joined_.resize(static_cast<size_t>(count));
  const auto* nearest = split.nearest.as<const bf16>();
  const auto* low = split.low.as<const uint16_t>();
  const auto* v = split.second_moment.as<const float>();
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t i = 0; i < count; ++i) {
    joined_[static_cast<size_t>(i)] =
        tensor.is_master ? joined({nearest[i], low[i], std::signbit(v[i])}) : std::abs(v[i]);
  }
  view_ = split.low;
  view_.dtype = Dtype::f32;
  view_.data = joined_.data();
}

// The sign of the second moment is the master's.
void StateElements::put() const {
  if (!tensor_.split) return;
  const StateTensor::Split& to = *tensor_.split;
  const auto count = std::ssize(joined_);
  auto* low = to.low.as<uint16_t>();
  auto* nearest = to.nearest.as<bf16>();
  auto* v = to.second_moment.as<float>();
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t i = 0; i < count; ++i) {
    const float x = joined_[static_cast<size_t>(i)];
    if (!tensor_.is_master) {
      v[i] = std::copysign(x, v[i]);
      continue;
    }
    const SplitFloat parts = split(x);
    nearest[i] = parts.nearest;
    low[i] = parts.low;
    v[i] = std::copysign(v[i], parts.up_at_half ? -1.0f : 1.0f);
  }
}

void copy_averages(const std::vector<StateTensor>& state, Average how) {
  std::map<const model::Parameter*, const StateTensor*> masters;
  for (const StateTensor& tensor : state) {
    if (tensor.is_master) masters[tensor.parameter] = &tensor;
  }
  for (const StateTensor& tensor : state) {
    if (!tensor.is_average() || !tensor.is_here()) continue;
    const TensorView &average = tensor.view, &master = masters.at(tensor.parameter)->view;
    HEDDLE_CHECK(average.dtype == master.dtype && average.elements() == master.elements(),
                 "'{}' is not as its master", tensor.name);
    const bool begins = how == Average::begins_as_master;
    std::memcpy((begins ? average : master).data, (begins ? master : average).data,
                static_cast<size_t>(average.elements() * size_of(average.dtype)));
  }
}

void initialise(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                uint64_t seed, const plan::Mesh& mesh, int rank) {
  for (const StateTensor& tensor : state_tensors(lowered, executor, mesh, rank)) {
    if (!tensor.is_here()) continue;
    const StateElements held(tensor);
    const TensorView& view = held.view();
    const model::Parameter& p = *tensor.parameter;
    const RandomKey key = RandomKey(seed).with(p.name);
    const bool zero = !tensor.is_master || p.start == model::Parameter::Start::zeros;
    const bool ones = p.start == model::Parameter::Start::ones;
    // The end of the last extent of a tensor that its ranks don't divide holds nothing.
    fill(view, 0, 0, view.elements(), [](int64_t) { return 0.0; });
    const std::vector<model::Extent> extents = held_extents(tensor, lowered, mesh, rank);
#pragma omp parallel for schedule(static) if (extents.size() > 16)
    for (size_t i = 0; i < (zero ? 0 : extents.size()); ++i) {
      const model::Extent& extent = extents[i];
      fill(view, extent.local, extent.whole, extent.count,
           [&](int64_t at) { return ones ? 1.0 : p.deviation * key.normal(static_cast<uint64_t>(at)); });
    }
    held.put();
  }
  copy_averages(state_tensors(lowered, executor, mesh, rank), Average::begins_as_master);
  fill_rope_table(config, lowered, executor, mesh, rank);
  executor.make_weights();
}

}  // namespace heddle::train
