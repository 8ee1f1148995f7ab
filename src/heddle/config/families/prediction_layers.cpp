#include "heddle/config/families/prediction_layers.h"

#include <algorithm>
#include <filesystem>

#include "heddle/formats/released_files.h"

namespace heddle::config {

std::optional<bool> weights_beside_have(const std::string& path, std::string_view first) {
  const auto names = formats::released_names(std::filesystem::path(path).parent_path().string());
  if (!names) return std::nullopt;
  return std::any_of(names->begin(), names->end(), [&](const auto& name) { return name.starts_with(first); });
}

// Transformers writes num_nextn_predict_layers = 1 unless told otherwise, also where no such layer was ever
// trained. A released model has the layers that lie beside its configuration.
void count_prediction_layers(model::ModelConfig& config, const std::string& path,
                             std::vector<std::string>* warnings) {
  count_prediction_layers(config, path, warnings, fmt::format("model.layers.{}.", config.num_hidden_layers));
}

void count_prediction_layers(model::ModelConfig& config, const std::string& path,
                             std::vector<std::string>* warnings, const std::string& layer) {
  if (config.num_nextn_predict_layers == 0 || weights_beside_have(path, layer).value_or(true)) return;
  if (warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: 'num_nextn_predict_layers' is {}, but the weights beside it have no such "
                    "layer: taken as 0",
                    path, config.num_nextn_predict_layers));
  }
  config.num_nextn_predict_layers = 0;
}

// Prediction modules repeat the embedding and the head. A router that chooses by score alone is one whose bias is
// zero.
FurtherTensors prediction_copies(const model::ModelConfig& c) {
  FurtherTensors further;
  const int64_t layers = c.num_hidden_layers + c.num_nextn_predict_layers;
  for (int64_t l = c.num_hidden_layers; l < layers; ++l) {
    const std::string prefix = fmt::format("model.layers.{}.", l);
    further.copies.push_back({prefix + "embed_tokens.weight", kEmbedding});
    further.copies.push_back(
        {prefix + "shared_head.head.weight", c.tie_word_embeddings ? kEmbedding : "lm_head.weight"});
  }
  for (int64_t l = 0; !c.topk_bias && l < layers; ++l) {
    if (!c.is_moe(l)) continue;
    further.zeros.push_back(
        {fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", l), c.n_routed_experts});
  }
  return further;
}

std::string_view repeated_by_predictions(std::string_view name, std::string_view head) {
  if (name.ends_with(".embed_tokens.weight") && name.starts_with("model.layers.")) return kEmbedding;
  if (name.ends_with(".shared_head.head.weight")) return head;
  return "";
}

}  // namespace heddle::config
