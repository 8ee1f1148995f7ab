// Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3 beside a model of pictures. Of text alone, places in pictures
// and in time are all the token's position.
//
// Sources: Qwen2VLConfig, Qwen2_5_VLConfig, Qwen3VLConfig, Qwen3VLMoeConfig and their models in Transformers 5,
// gone through key by key; the config.json files released with Qwen2.5-VL and Qwen3-VL.
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"

namespace heddle::config {

namespace {

constexpr const char* kOfPictures[] = {"image_token_id",  "video_token_id",      "vision_config",
                                       "vision_token_id", "vision_end_token_id", "vision_start_token_id"};

// The first files have the text model's keys at the root.
void take_text_qwen_vl(Json& root, const std::string& place) {
  if (root.value("text_config", Json()).is_null()) {
    for (const char* name : kOfPictures) root.erase(name);
  } else {
    take_text_config(root, place);
  }
  const RopeSection section = rope_section(JsonKeys(root, place, ""));
  if (section.keys == nullptr) return;
  const std::string kind = rope_kind(JsonKeys(*section.keys, place, section.name + std::string(".")));
  if (kind == "mrope") root[section.name]["rope_type"] = "default";
}

// Names before Transformers 5 are the text model's own.
bool is_of_pictures_qwen(std::string_view name, const HasTensor&) {
  return name.starts_with("visual.") || name.starts_with("model.visual.");
}

std::optional<ReleasedPlace> stacked_qwen_vl(const std::string& name, const std::vector<int64_t>& shape,
                                             int64_t experts, const JoinedRows&) {
  std::optional<ReleasedPlace> place = stacked_turned_expert(name, shape, experts, "mlp.experts.");
  if (place) place->name = spelt_beside_pictures(place->name);
  return place;
}

Family beside_pictures_qwen(Family text, const char* architecture, const char* model_type, double theta) {
  Family f = beside_pictures(std::move(text), architecture, model_type);
  f.base.rope_theta = theta;
  f.rewrite = take_text_qwen_vl;
  f.spelt = spelt_beside_pictures;
  f.passed_over = is_of_pictures_qwen;
  return f;
}

Family of_qwen2(const char* architecture, const char* model_type) {
  Family f = beside_pictures_qwen(qwen2(), architecture, model_type, 1e6);
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-5)});
  return f;
}

Family of_qwen3(Family f, const char* architecture, const char* model_type) {
  drop_keys(f, {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"});
  return beside_pictures_qwen(std::move(f), architecture, model_type, 5e5);
}

}  // namespace

Family qwen2_vl() { return of_qwen2("Qwen2VLForConditionalGeneration", "qwen2_vl"); }
Family qwen2_5_vl() { return of_qwen2("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"); }
Family qwen3_vl() { return of_qwen3(qwen3(), "Qwen3VLForConditionalGeneration", "qwen3_vl"); }
Family qwen3_vl_moe() {
  Family f = of_qwen3(qwen3_moe(), "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe");
  replace_keys(f, {key("norm_topk_prob", "norm_topk_prob", true)});
  f.only.push_back(is("norm_topk_prob", true, "gates sum to one"));
  f.rewrite = [](Json& root, const std::string& place) {
    take_text_qwen_vl(root, place);
    name_num_experts(root, place);
  };
  f.stacked = stacked_qwen_vl;
  return f;
}

}  // namespace heddle::config
