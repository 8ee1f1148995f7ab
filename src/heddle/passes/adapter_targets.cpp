#include "heddle/passes/adapter_targets.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::passes {

namespace {

using model::Parameter;

constexpr std::string_view kWeight = ".weight", kAll = "all";

// The parts of a model whose linear maps may have adapters; "" for the others.
std::string_view part_word(Parameter::Part part) {
  switch (part) {
    case Parameter::Part::attention: return "attention";
    case Parameter::Part::mlp: return "mlp";
    case Parameter::Part::shared_experts: return "shared";
    case Parameter::Part::experts: return "experts";
    default: return "";
  }
}

std::vector<std::string> words_of(const std::string& targets) {
  std::vector<std::string> words(1);
  for (const char c : targets) {
    if (c == ',') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace

std::string stem_of(const std::string& name) {
  HEDDLE_CHECK(name.ends_with(kWeight), "'{}' is no weight", name);
  return name.substr(0, name.size() - kWeight.size());
}

std::string module_of(const std::string& name) {
  const std::string stem = stem_of(name);
  return stem.substr(stem.rfind('.') + 1);
}

std::string word_of_module(const Parameter& p, size_t dims, const std::string& released, int64_t layers) {
  const std::string_view part = part_word(p.part);
  if (part.empty() || p.layer < 0 || p.layer >= layers || !model::is_matrix(p, dims)) return "";
  return fmt::format("{}.{}", part, module_of(released));
}

Targets::Targets(const std::string& targets, int64_t layers) : words_(words_of(targets)), layers_(layers) {}

bool Targets::has(const Parameter& p, const ir::Listing& listing) {
  const size_t dims = listing.value(p.value).shape.size();
  const std::string part(part_word(p.part));
  if (part.empty() || p.layer < 0 || p.layer >= layers_ || !model::is_matrix(p, dims)) return false;
  // Rows of a larger tensor of the files: adapters of several such would have one name there.
  if (std::any_of(p.released.begin(), p.released.end(), [](const auto& each) { return !each.shape.empty(); }))
    return false;
  known_.insert({part, std::string(kAll)});
  for (const model::ReleasedPart& released : p.released) {
    known_.insert(module_of(released.name));
    narrow_.insert(word_of_module(p, dims, released.name, layers_));
  }
  const auto is_part = [&](const std::string& word) { return word == kAll || word == part; };
  if (std::any_of(words_.begin(), words_.end(), is_part)) return true;
  const auto is_named = [&](const model::ReleasedPart& released) {
    return std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
      return word == module_of(released.name) || word == word_of_module(p, dims, released.name, layers_);
    });
  };
  const auto named = std::count_if(p.released.begin(), p.released.end(), is_named);
  if (named > 0 && named < std::ssize(p.released)) {
    config_error("lora.targets: {} and {} are one product: both are named, or none",
                 module_of(p.released.front().name), module_of(p.released.back().name));
  }
  return named > 0;
}

void Targets::check() const {
  const std::vector<std::string> accepted(known_.begin(), known_.end());
  for (const std::string& word : words_) {
    if (known_.contains(word) || narrow_.contains(word)) continue;
    config_error("lora.targets: the model has no '{}', accepted: {}{}", word, fmt::join(accepted, ", "),
                 did_you_mean(word, accepted));
  }
}

}  // namespace heddle::passes
