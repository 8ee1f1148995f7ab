#include "heddle/train/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "heddle/base/numbers/split_float.h"

namespace heddle::train {

namespace {

using device::TensorView;

std::vector<int64_t> dims_of(const ir::Value& value) {
  std::vector<int64_t> dims;
  for (const ir::Dim& dim : value.shape) dims.push_back(dim.count);
  return dims;
}

// The part of a state tensor that the pipeline rank of a rank holds.
struct Held {
  const ir::Listing* listing = nullptr;
  const model::Parameter* parameter = nullptr;  // null: nothing
  ir::ValueId value = ir::none;
  bool has_copies = false;  // several ranks hold the parameter
  /// True if it is cut into runs among the ranks that hold copies of the parameter. A run of a single number looks
  /// as the whole.
  bool is_shard() const {
    const ir::Value &run = listing->value(value), &whole = listing->value(parameter->value);
    const bool single = whole.shape.size() == 1 && whole.shape[0].count == 1;
    return run.shape != whole.shape || (single && has_copies && value != parameter->value);
  }
};

// The master, or the half of it that its weight lacks, or the weight that is its own.
ir::ValueId master_of(const model::Parameter& p, const ir::Listing& listing) {
  if (const ir::ValueId rest = listing.find("rest." + p.name); rest != ir::none) return rest;
  if (const ir::ValueId master = listing.find("master." + p.name); master != ir::none) return master;
  const bool sharded = listing.value(p.value).space == ir::Space::nowhere;
  return sharded ? listing.find("copy." + p.name) : p.value;
}

StateTensor::Split split_of(const model::Parameter& p, const ir::Listing& listing, int index,
                            const StateView& view) {
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
    held.has_copies = mesh.group(p.replica_group, rank).size() > 1;
  }
  return held;
}

}  // namespace

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh, int rank,
                                       const StateView& view) {
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
        const Dtype dtype = splits && is_master ? Dtype::f32 : listing.value(id).dtype;
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

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh) {
  return state_tensors(lowered, mesh, 0, [](int, ir::ValueId) { return TensorView(); });
}

namespace {

std::vector<model::Extent> at_homes(std::vector<model::Extent> extents, const StateTensor& tensor,
                                    const ExpertPlacements& placements) {
  const auto at = placements.layers.find(tensor.parameter->layer);
  if (at == placements.layers.end()) return extents;
  return model::extents_at_homes(*tensor.parameter, std::move(extents), tensor.elements(), at->second);
}

}  // namespace

std::vector<model::Extent> held_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                        const plan::Mesh& mesh, int rank, const ExpertPlacements& placements) {
  const Held held = held_by(tensor, lowered, mesh, rank);
  if (held.parameter == nullptr) return {};
  const ir::Listing& listing = *held.listing;
  const model::Parameter& p = *held.parameter;
  std::vector<model::Extent> extents = model::extents_of(p, dims_of(listing.value(p.value)), mesh.at(rank));
  if (!held.is_shard()) return at_homes(extents, tensor, placements);
  const std::vector<int> group = mesh.group(p.frozen ? p.within : p.replica_group, rank);
  const int64_t at = std::find(group.begin(), group.end(), rank) - group.begin();
  const int64_t each = listing.value(held.value).shape.at(0).count;
  return at_homes(model::extents_within(extents, at * each, each), tensor, placements);
}

std::vector<model::Extent> owned_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                         const plan::Mesh& mesh, int rank, const ExpertPlacements& placements) {
  const Held held = held_by(tensor, lowered, mesh, rank);
  if (held.parameter == nullptr) return {};
  const model::Parameter& p = *held.parameter;
  const std::string& alike = held.is_shard() ? (p.frozen ? p.across : "") : p.replica_group;
  if (!alike.empty() && mesh.group(alike, rank)[0] != rank) return {};
  return held_extents(tensor, lowered, mesh, rank, placements);
}

namespace {

// Calls body(v) with the numbers of the second moment, whose signs are the master's.
template <class Body>
void with_second_moment(const StateTensor::Split& split, const Body& body) {
  if (split.second_moment.dtype == Dtype::bf16) return body(split.second_moment.as<bf16>());
  body(split.second_moment.as<float>());
}

template <class Body>
void each_element(int64_t count, const Body& body) {
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace

StateElements::StateElements(const StateTensor& tensor) : tensor_(tensor), view_(tensor.view) {
  HEDDLE_CHECK(tensor.is_here(), "'{}' is not here", tensor.name);
  if (!tensor.split) return;
  const StateTensor::Split& split = *tensor.split;
  const int64_t count = split.low.elements();
  joined_.resize(static_cast<size_t>(count * size_of(tensor.dtype)));
  view_ = split.low;
  view_.dtype = tensor.dtype;
  view_.data = joined_.data();
  const auto* nearest = split.nearest.as<const bf16>();
  const auto* low = split.low.as<const uint16_t>();
  with_second_moment(split, [&](const auto* v) {
    using Moment = std::remove_cvref_t<decltype(*v)>;
    if (tensor.is_master) {
      auto* to = view_.as<float>();
      each_element(count, [&](int64_t i) {
        to[i] = joined({nearest[i], low[i], std::signbit(static_cast<float>(v[i]))});
      });
    } else {
      auto* to = view_.as<Moment>();
      each_element(count, [&](int64_t i) { to[i] = std::abs(static_cast<float>(v[i])); });
    }
  });
}

// The sign of the second moment is the master's.
void StateElements::put() const {
  if (!tensor_.split) return;
  const StateTensor::Split& to = *tensor_.split;
  auto* low = to.low.as<uint16_t>();
  auto* nearest = to.nearest.as<bf16>();
  with_second_moment(to, [&](auto* v) {
    using Moment = std::remove_cvref_t<decltype(*v)>;
    if (!tensor_.is_master) {
      const auto* from = view_.as<Moment>();
      each_element(view_.elements(),
                   [&](int64_t i) { v[i] = std::copysign(static_cast<float>(from[i]), static_cast<float>(v[i])); });
      return;
    }
    const auto* from = view_.as<float>();
    each_element(view_.elements(), [&](int64_t i) {
      const SplitFloat parts = split(from[i]);
      nearest[i] = parts.nearest;
      low[i] = parts.low;
      v[i] = std::copysign(static_cast<float>(v[i]), parts.up_at_half ? -1.0f : 1.0f);
    });
  });
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

}  // namespace heddle::train
