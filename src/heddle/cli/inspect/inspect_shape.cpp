// heddle inspect --model NAME: a published model by its dimensions alone.
#include "heddle/cli/inspect/inspect_shape.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/failure.h"
#include "heddle/base/say.h"
#include "heddle/base/text.h"
#include "heddle/config/run_config.h"
#include "heddle/model/shapes/shape_names.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const model::Shape& s : model::shape_presets()) all.push_back(s.name);
  for (const std::string& name : config::preset_names()) {
    if (model::find_shape(name) == nullptr) all.push_back(name);
  }
  return all;
}

// A model by dimensions alone, or one that can be trained too.
std::optional<model::Shape> shape_named(const std::string& name) {
  if (const model::Shape* shape = model::find_shape(name)) return *shape;
  for (const std::string& preset : config::preset_names()) {
    if (same_name(preset, name)) return model::shape_of(config::preset(preset), preset);
  }
  return std::nullopt;
}

}  // namespace

int inspect_shape(const std::string& model, bool json) {
  const std::optional<model::Shape> s = shape_named(model);
  if (!s) {
    const std::string near = model::names_like(model, names());
    config_error("inspect: model '{}' is not known{}", model.substr(0, 60),
                 near.empty() ? model::kSuchNames : near);
  }
  const double all = model::total_parameters(*s), active = model::active_parameters(*s);
  const double flops_4k = model::training_flops_per_token(*s, 4096),
               flops_8k = model::training_flops_per_token(*s, 8192);
  if (json) {
    Json told{{"model", s->name},
              {"parameters", static_cast<int64_t>(all)},
              {"active", static_cast<int64_t>(active)},
              {"training_flops_per_token_4096", flops_4k},
              {"training_flops_per_token_8192", flops_8k}};
    if (s->num_nextn_predict_layers > 0)
      told["parameters_with_mtp"] = static_cast<int64_t>(model::total_parameters(*s, true));
    say("{}\n", told.dump(2));
    return kDone;
  }
  observe::Table table({{s->name}, {"", observe::Align::right}});
  table.row({"parameters", observe::grouped_text(std::llround(all))});
  if (s->num_nextn_predict_layers > 0)
    table.row(
        {"with multi-token prediction", observe::grouped_text(std::llround(model::total_parameters(*s, true)))});
  table.row({"active in a token", observe::grouped_text(std::llround(active))});
  table.row({"training GFLOP a token, sequence 4096", fmt::format("{:.2f}", flops_4k / 1e9)});
  table.row({"training GFLOP a token, sequence 8192", fmt::format("{:.2f}", flops_8k / 1e9)});
  say("{}", table.text(observe::describe_terminal(1)));
  return kDone;
}

}  // namespace heddle::cli
