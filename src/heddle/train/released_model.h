// A model's parameters to and from the files that Hugging Face Transformers reads. There is one tensor an expert
// and matrix, or one of all experts, as the model's family has it, under the released names. They lie in
// model.safetensors (or the shards of an index), beside config.json.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/config/families/released_place.h"
#include "heddle/formats/logical_tensor.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"
#include "heddle/train/parameters.h"

namespace heddle::config {
struct Family;
}

namespace heddle::train {

/// A parameter of the whole model and where it lies. The shape's first dim is all experts for experts' parameters.
struct ParameterTensor {
  model::Parameter parameter;
  formats::LogicalTensor tensor;
};

/// The masters of a model's state; moments have no place in released files.
std::vector<ParameterTensor> master_tensors(const std::vector<StateTensor>& state);
/// The masters of the whole model where nothing runs, or only a share of it: their tensors have no pieces. `mesh`
/// is that of the plan that was lowered.
std::vector<ParameterTensor> master_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh);

/// One released tensor inside a parameter, or one expert's part of one.
struct ReleasedSlice {
  std::string name;
  size_t parameter = 0;  // index in the list
  std::vector<int64_t> shape;
  int64_t first = 0, count = 0;  // elements of the parameter
  int64_t experts = 0;           // number of experts, where it is one's; 0: no expert's
  int64_t first_row = 0;         // of the tensor of shape `whole`, if that is larger or of other dims
  std::vector<int64_t> whole = {};
  config::JoinedRows joined = {};  // its place among queries, keys and values, if it is one of a layer's three

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
};

/// The place of a slice in a folder where its tensor would have `place` if it were the slice alone.
config::ReleasedPlace placed(config::ReleasedPlace place, const ReleasedSlice& slice);

/// Every released tensor of the parameters, in their order; the rotary table is no released tensor.
std::vector<ReleasedSlice> released_slices(const std::vector<ParameterTensor>& parameters);

/// A tensor of a family's folder and the slices that its elements are of.
struct ReleasedTensor {
  std::string name;
  std::vector<int64_t> shape;
  struct Part {
    ReleasedSlice slice;
    config::ReleasedPlace place;
  };
  std::vector<Part> parts;  // parts in the order of their first elements
};

/// The tensors that hold all slices, by name.
std::vector<ReleasedTensor> released_tensors(const config::Family& family,
                                             const std::vector<ReleasedSlice>& slices);

/// Fills every parameter from released files (ReleasedSource), whose errors it has. Values are converted to the
/// parameter's type. Nothing is written before all is checked.
void import_released(const std::string& path, const std::vector<ParameterTensor>& parameters);

/// The text of a whole model on one rank, where nothing runs: what names, shapes and parts of its parameters are
/// read off. Of bf16 weights, so that masters are f32 for every parameter.
plan::Lowered text_of_model(const model::ModelConfig& model, const passes::Adapters& adapters = {});
/// The masters of that text.
std::vector<ParameterTensor> masters_of_model(const model::ModelConfig& model,
                                              const passes::Adapters& adapters = {});

/// Options for writing a model.
struct Release {
  Dtype stored = Dtype::bf16;  // type of the values: f32, bf16 or f64; the selection bias is always F32, as
                               // released
  int64_t shard_bytes = int64_t{5} << 30;                  // bytes of a file at most, unless one tensor is larger
  std::string tokenizer;                                   // the path of its file, "": none
  std::vector<std::pair<std::string, std::string>> files;  // further ones, by name with their text
  std::vector<std::pair<std::string, std::vector<int64_t>>> special;  // "eos_token_id" and kin with their tokens
};

/// Writes folder/config.json and folder/model.safetensors (or shards and their index), and further files; copies
/// the tokenizer. Prediction modules come with their copies of the embedding and the head, as in the released
/// model. Holds no copy of a tensor. ConfigError when no published architecture is the model, SystemError when the
/// disk says no.
void export_released(const std::string& folder, const model::ModelConfig& config,
                     const std::vector<ParameterTensor>& parameters, const Release& how);

}  // namespace heddle::train
