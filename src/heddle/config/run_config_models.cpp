// Models by name: the demo, and what the families have published.
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/text.h"
#include "heddle/config/families/family.h"
#include "heddle/config/run_config.h"

namespace heddle::config {

namespace {

model::ModelConfig demo() {
  model::ModelConfig c;
  c.num_nextn_predict_layers = 1;
  c.sequence_aux_loss_alpha = 1e-4;
  return c;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> list{{"demo", demo()}};
    for (const Family& family : families()) {
      list.insert(list.end(), family.presets.begin(), family.presets.end());
    }
    return list;
  }();
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

model::ModelConfig preset(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (same_name(preset.name, name)) return preset.model;
  }
  config_error("no preset '{}', accepted: {}{}", shown(name), fmt::join(preset_names(), ", "),
               did_you_mean(name, preset_names()));
}

}  // namespace heddle::config
