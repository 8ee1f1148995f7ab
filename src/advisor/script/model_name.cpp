#include "advisor/script/model_name.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "heddle/model/shapes/shape_presets.h"

namespace heddle::advisor {

namespace {

// Bases of the rotary positions of families whose models share their sizes with others.
struct RotaryBase {
  std::string_view family;
  double base;
};
constexpr RotaryBase kBases[] = {{"Llama-2", 1e4},   {"Llama-3.1", 5e5}, {"Llama-3", 5e5},  {"Mistral", 1e4},
                                 {"Mixtral", 1e6},   {"Qwen3", 1e6},     {"DeepSeek", 1e4}, {"Kimi", 5e4},
                                 {"Moonlight", 5e4}, {"GPT-OSS", 1.5e5}};

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Letters of a name that stand in the evidence, from its beginning on: "Llama-3-8B" in "Meta-Llama-3-8B" all of
// them, in "llama-3.1-8b" the family.
size_t spoken(const std::string& preset, const std::string& names) {
  const std::string name = squeezed(preset);
  size_t most = 0;
  for (size_t at = 0; at < names.size(); ++at) {
    size_t n = 0;
    while (n < name.size() && at + n < names.size() && names[at + n] == name[n]) ++n;
    most = std::max(most, n);
  }
  return most >= 5 ? most : 0;  // "llama" at least
}

bool same_base(const std::string& preset, double base) {
  for (const RotaryBase& each : kBases)
    if (preset.starts_with(each.family)) return std::abs(each.base - base) < 0.5;
  return false;
}

}  // namespace

ModelEvidence evidence_of(const GivenFlags& flags) {
  ModelEvidence evidence;
  for (const char* flag : {"--tokenizer-model", "--tokenizer-name-or-path", "--tokenizer-type", "--vocab-file",
                           "--load", "--save", "--hf-checkpoint", "--model-type-hf", "--patch-tokenizer-type"})
    evidence.names += flags.known_text(flag) + " ";
  const std::string base = flags.known_text("--rotary-base");
  if (!base.empty()) evidence.rotary_base = std::strtod(base.c_str(), nullptr);
  return evidence;
}

NamedModel name_of_shape(const Launch& launch, const ModelEvidence& evidence) {
  const model::Shape own = normalized(launch).job.shape;
  std::vector<const model::Shape*> alike;
  for (const model::Shape& preset : model::shape_presets()) {
    Launch published = launch;
    published.job.shape = preset;
    published.job.shape.num_nextn_predict_layers = launch.job.shape.num_nextn_predict_layers;
    // Scripts often leave out what takes no time.
    if (preset.n_group > 1 && launch.job.shape.n_group > 1) published.job.shape.n_group = launch.job.shape.n_group;
    published.job.shape.routed_scaling_factor = launch.job.shape.routed_scaling_factor;
    published.job.shape.norm_topk_prob = launch.job.shape.norm_topk_prob;
    published.job.shape.sigmoid_scores = launch.job.shape.sigmoid_scores;
    if (!preset.has_gated_mlp() && !launch.job.shape.has_gated_mlp())
      published.job.shape.activation = launch.job.shape.activation;
    if (own.vocab_size == 0) published.job.shape.vocab_size = 0;
    model::Shape known = normalized(published).job.shape;
    known.name = own.name;
    if (known == own) alike.push_back(&preset);
  }
  if (alike.empty()) return {};
  const std::string names = squeezed(evidence.names);
  const auto weight = [&](const model::Shape* preset) {
    return 2 * spoken(preset->name, names) +
           (evidence.rotary_base > 0 && same_base(preset->name, evidence.rotary_base));
  };
  const model::Shape* best =
      *std::max_element(alike.begin(), alike.end(), [&](auto* a, auto* b) { return weight(a) < weight(b); });
  NamedModel named{best->name, best->vocab_size, {}};
  for (const model::Shape* other : alike)
    if (other != best && other->vocab_size != best->vocab_size)
      named.others.push_back(fmt::format("{} ({})", other->name, other->vocab_size));
  return named;
}

}  // namespace heddle::advisor
