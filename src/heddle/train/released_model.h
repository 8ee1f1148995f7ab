// A model's parameters to and from the files that Hugging Face Transformers reads: one tensor an expert and matrix,
// under the released names, in model.safetensors (or the shards of an index), beside config.json.
#pragma once

#include <string>
#include <vector>

#include "heddle/formats/logical_tensor.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"
#include "heddle/train/parameters.h"

namespace heddle::train {

/// A parameter of the whole model and where it lies. The shape's first dim is all experts for experts' parameters.
struct ParameterTensor {
  model::Parameter parameter;
  formats::LogicalTensor tensor;
};

/// The masters of a model's state; moments have no place in released files.
std::vector<ParameterTensor> master_tensors(const std::vector<StateTensor>& state);

/// One released tensor inside a parameter.
struct ReleasedSlice {
  std::string name;
  size_t parameter = 0;  // index in the list
  std::vector<int64_t> shape;
  int64_t first = 0, count = 0;  // elements of the parameter
};

/// Every released tensor of the parameters, in their order; the rotary table is no released tensor.
std::vector<ReleasedSlice> released_slices(const std::vector<ParameterTensor>& parameters);

/// Fills every parameter from `path`: a folder with model.safetensors or model.safetensors.index.json, or one file.
/// Values are converted to the parameter's type. ConfigError when a tensor is missing or has another shape, or when
/// a tensor of the files goes nowhere; the message lists the first of each. Nothing is written before all is
/// checked. Repeated copies of the embedding and the head (tied models, prediction modules) are checked to be
/// copies. Tensors without elements may be there.
void import_released(const std::string& path, const std::vector<ParameterTensor>& parameters);

/// Writes folder/config.json and folder/model.safetensors with values as `stored` (f32, bf16 or f64; the selection
/// bias always F32, as released), and copies `tokenizer` (a tokenizer.json) into it unless "". Prediction modules
/// come with their copies of the embedding and the head, as in the released model. ConfigError when no
/// published architecture is the model, SystemError when the disk says no.
void export_released(const std::string& folder, const model::ModelConfig& config,
                     const std::vector<ParameterTensor>& parameters, Dtype stored,
                     const std::string& tokenizer = "");

}  // namespace heddle::train
