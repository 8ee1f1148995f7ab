// Adapters to and from the files that PEFT reads, adapter_config.json and adapter_model.safetensors; and merged
// into the weights that they stand beside. A tensor's name is "base_model.model." + the published name of the
// module + ".lora_A.weight" or ".lora_B.weight".
#pragma once

#include <string>
#include <vector>

#include "heddle/formats/released_files.h"
#include "heddle/passes/options/adapters.h"
#include "heddle/train/released_model.h"

namespace heddle::train {

/// Writes both files into a folder, the adapters' values in fp32. `parameters` are those of the whole model: only
/// what is not frozen has pieces. `base`: how the configuration names the model beneath. SystemError when the disk
/// says no.
void export_adapters(const std::string& folder, const model::ModelConfig& model, const passes::Adapters& chosen,
                     const std::vector<ParameterTensor>& parameters, const std::string& base);

/// Why adapters of these targets can't be written so: the family's files hold a weight of theirs together with
/// others. "": they can.
std::string why_no_adapter_files(const model::ModelConfig& model, const passes::Adapters& chosen);

/// Adds s · B A to the weights that adapters stand beside, in fp32. `weights` are masters in f32 or f64, which are
/// written; those that no adapter stands beside are left alone.
void merge_adapters(const passes::Adapters& chosen, const std::vector<ParameterTensor>& adapters,
                    const std::vector<ParameterTensor>& weights);

/// The adapters of such a folder, as they stand beside a model: rank, alpha and kind as its configuration says, as
/// targets the words for what its tensors stand beside. ConfigError where that can't be said: adapters of some
/// layers or experts only, or of another kind.
passes::Adapters adapters_in(const std::string& folder, const model::ModelConfig& model);

/// ConfigError where the folder's configuration says another rank, alpha or kind.
void check_adapters(const std::string& folder, const passes::Adapters& chosen);
formats::ReleasedFiles adapter_tensors(const std::string& folder);
/// The tensor of an adapter ("a.q_proj.lora_A.weight"), as any family calls it; null where there is none.
const formats::StoredTensor* find_adapter(const formats::ReleasedFiles& files, const std::string& name);

}  // namespace heddle::train
