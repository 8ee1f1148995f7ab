// How parameters begin, and the state as it lies in an executor's arenas.
#include <cmath>
#include <functional>

#include "heddle/base/random.h"
#include "heddle/model/hashed_experts.h"
#include "heddle/model/rope_table.h"
#include "heddle/train/parameters.h"

namespace heddle::train {

namespace {

using device::TensorView;

// value(i) into element i − first + at.
template <class Value>
void fill(const TensorView& view, int64_t at, int64_t first, int64_t count, Value value) {
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t i = 0; i < count; ++i) {
    if (view.dtype == Dtype::f64) {
      view.as<double>()[at + i] = value(first + i);
    } else if (view.dtype == Dtype::bf16) {  // frozen weights, moments
      view.as<bf16>()[at + i] = bf16(static_cast<float>(value(first + i)));
    } else if (view.dtype == Dtype::u8) {  // moments, which begin at zero
      view.as<uint8_t>()[at + i] = static_cast<uint8_t>(value(first + i));
    } else {
      view.as<float>()[at + i] = static_cast<float>(value(first + i));
    }
  }
}

double first_value(const model::Parameter& p, const RandomKey& key, uint64_t place, int64_t columns) {
  using Start = model::Parameter::Start;
  switch (p.start) {
    case Start::ones: return 1;
    case Start::log_uniform: return std::log(p.deviation * (1 - key.uniform(place)));
    case Start::time_step: {
      const double step = p.deviation * std::pow(100, -key.uniform(place));
      return step + std::log(-std::expm1(-step));
    }
    case Start::hashed_experts:
      return static_cast<double>(
          model::hashed_expert(key, static_cast<int64_t>(place), columns, static_cast<int64_t>(p.deviation)));
    case Start::constant: return p.deviation;
    case Start::weights_of_streams:  // σ of it is 1 ÷ so many
      return static_cast<double>(place) < p.deviation ? -std::log(std::max(p.deviation - 1, 1.0)) : 0;
    default: return p.deviation * key.normal(place);
  }
}

}  // namespace

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, runtime::Executor& executor,
                                       const plan::Mesh& mesh, int rank) {
  return state_tensors(lowered, mesh, rank,
                       [&](int listing, ir::ValueId id) { return executor.view(listing, id); });
}

void fill_rope_table(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                     const plan::Mesh& mesh, int rank) {
  const ir::Coordinates& place = mesh.at(rank);
  const int cp = place.of(ir::Axis::cp);
  for (const int s : lowered.program.listings_of(rank)) {
    const ir::Listing& listing = lowered.program.listings[s];
    const auto fill_one = [&](const char* name, const model::ModelConfig& rotation, int tp = 1) {
      const ir::ValueId id = listing.find(name);
      if (id == ir::none || listing.value(id).shared_with >= 0) return;
      const TensorView view = executor.view(s, id);
      const int64_t length = view.dim(0) * cp * tp, width = view.dim(1);
      const int64_t before = tp > 1 ? view.dim(0) * place.at(ir::Axis::tp) : 0;
      const std::vector<double> table = model::rope_table(rotation, length);
      for (int64_t j = 0; j < view.dim(0); ++j) {
        const int64_t first = ir::position(before + j, length, place.at(ir::Axis::cp), cp) * width;
        fill(view, j * width, first, width, [&](int64_t i) { return table[i]; });
      }
    };
    fill_one(model::kRopeTable, config);
    fill_one(model::kOwnRopeTable, config, place.of(ir::Axis::tp));
    const bool means = config.selects() && config.index_blocks == model::IndexBlocks::mean;
    const std::vector<int64_t> entries = config.is_compressed()
                                             ? std::vector{config.sparse_rate, config.heavy_rate}
                                             : std::vector<int64_t>(means ? 1 : 0, config.index_block_size);
    for (const int64_t tokens : entries) {
      const ir::ValueId id = listing.find(model::rope_table_name(tokens));
      if (id == ir::none || listing.value(id).shared_with >= 0) continue;
      const TensorView view = executor.view(s, id);
      const std::vector<double> table = model::rope_table(config, view.dim(0) * tokens);
      for (int64_t j = 0; j < view.dim(0); ++j)
        fill(view, j * view.dim(1), j * tokens * view.dim(1), view.dim(1), [&](int64_t i) { return table[i]; });
    }
    for (size_t id = 0; id < listing.values.size(); ++id) {
      const ir::Value& value = listing.values[id];
      const bool gain = model::is_unit_gain(value.name);
      if (value.shared_with >= 0 || (!gain && !model::is_zero_bias(value.name))) continue;
      const TensorView view = executor.view(s, static_cast<ir::ValueId>(id));
      fill(view, 0, 0, view.elements(), [&](int64_t) { return gain ? 1.0 : 0.0; });
    }
    if (config.has_window_rotation()) fill_one(model::kWindowRopeTable, config.with_rotation_of_windows());
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
    // The end of the last extent of a tensor that its ranks don't divide holds nothing.
    fill(view, 0, 0, view.elements(), [](int64_t) { return 0.0; });
    const std::vector<model::Extent> extents = held_extents(tensor, lowered, mesh, rank);
#pragma omp parallel for schedule(static) if (extents.size() > 16)
    for (size_t i = 0; i < (zero ? 0 : extents.size()); ++i) {
      const model::Extent& extent = extents[i];
      fill(view, extent.local, extent.whole, extent.count,
           [&](int64_t at) { return first_value(p, key, static_cast<uint64_t>(at), tensor.shape.back()); });
    }
    held.put();
  }
  copy_averages(state_tensors(lowered, executor, mesh, rank), Average::begins_as_master);
  fill_rope_table(config, lowered, executor, mesh, rank);
  executor.make_weights();
}

}  // namespace heddle::train
