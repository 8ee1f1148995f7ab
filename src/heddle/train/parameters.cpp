#include "heddle/train/parameters.h"

#include <cstring>

#include "heddle/base/random.h"
#include "heddle/model/rope_table.h"

namespace heddle::train {

namespace {

using device::TensorView;

template <class Value>
void fill(const TensorView& view, Value value) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < view.elements(); ++i) {
    if (view.dtype == Dtype::f64) {
      view.as<double>()[i] = value(i);
    } else {
      view.as<float>()[i] = static_cast<float>(value(i));
    }
  }
}

}  // namespace

std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, runtime::Executor& executor) {
  std::vector<StateTensor> tensors;
  for (size_t s = 0; s < lowered.parameters.size(); ++s) {
    const ir::Stage& stage = lowered.program.stages[s];
    for (const model::Parameter& p : lowered.parameters[s]) {
      if (p.start == model::Parameter::Start::rope_table) continue;
      const ir::ValueId master = stage.find("master." + p.name);
      const int index = static_cast<int>(s);
      tensors.push_back({p.name, executor.view(index, master == ir::none ? p.value : master), &p, true});
      for (const char* moment : {"m.", "v."}) {
        const ir::ValueId id = stage.find(moment + p.name);
        if (id != ir::none) tensors.push_back({moment + p.name, executor.view(index, id), &p, false});
      }
    }
  }
  return tensors;
}

void fill_rope_table(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor) {
  for (size_t s = 0; s < lowered.program.stages.size(); ++s) {
    const ir::Stage& stage = lowered.program.stages[s];
    const ir::ValueId id = stage.find("rope_table");
    if (id == ir::none || stage.value(id).shared_with_stage >= 0) continue;
    const TensorView view = executor.view(static_cast<int>(s), id);
    const std::vector<double> table = model::rope_table(config, view.dim(0));
    fill(view, [&](int64_t i) { return table[static_cast<size_t>(i)]; });
  }
}

void initialise(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                uint64_t seed) {
  for (const StateTensor& tensor : state_tensors(lowered, executor)) {
    const model::Parameter& p = *tensor.parameter;
    const RandomKey key = RandomKey(seed).with(p.name);
    if (!tensor.is_master || p.start == model::Parameter::Start::zeros) {
      fill(tensor.view, [](int64_t) { return 0.0; });
    } else if (p.start == model::Parameter::Start::ones) {
      fill(tensor.view, [](int64_t) { return 1.0; });
    } else {
      fill(tensor.view, [&](int64_t i) { return p.deviation * key.normal(static_cast<uint64_t>(i)); });
    }
  }
  fill_rope_table(config, lowered, executor);
  executor.make_weights();
}

}  // namespace heddle::train
