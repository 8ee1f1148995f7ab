#include "heddle/passes/host/residency_words.h"

#include <algorithm>
#include <utility>

namespace heddle::passes {

namespace {

constexpr std::string_view kDevice = "device", kAuto = "auto", kAllWord = "all";

struct PartWord {
  std::string_view name;
  model::Parameter::Part part;
};
using Part = model::Parameter::Part;
constexpr PartWord kParts[] = {{"embedding", Part::embedding},
                               {"attention", Part::attention},
                               {"indexer", Part::indexer},
                               {"mlp", Part::mlp},
                               {"router", Part::router},
                               {"experts", Part::experts},
                               {"shared", Part::shared_experts},
                               {"hyper_connection", Part::hyper_connection},
                               {"join", Part::join},
                               {"head", Part::head}};

bool holds(const OpGroup& group, const model::Parameter& p) {
  const OpGroup any;
  const bool everywhere = group.first_layer == any.first_layer && group.last_layer == any.last_layer;
  if (!everywhere && (p.layer < group.first_layer || p.layer > group.last_layer)) return false;
  if (p.part == Part::convolution && group.name == "attention") return true;
  return group.name == kAllWord || group.name == kAuto ||
         std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const PartWord& word) { return word.name == group.name && word.part == p.part; });
}

// "0-11, mlp" as "all:0-11, mlp".
std::string with_names(std::string_view text) {
  std::string named;
  bool begins = true;
  for (const char c : text) {
    if (begins && c >= '0' && c <= '9') named += std::string(kAllWord) + ":";
    begins = c == ',' || (begins && c == ' ');
    named += c;
  }
  return named;
}

}  // namespace

std::vector<std::string> part_words() {
  std::vector<std::string> words{std::string(kAllWord)};
  for (const PartWord& word : kParts) words.emplace_back(word.name);
  return words;
}

std::vector<OpGroup> part_groups(std::string_view text) {
  std::vector<OpGroup> groups = parse_words(with_names(text), "cut among ranks", part_words());
  for (const OpGroup& group : groups) {
    if (group.above > 0) config_error("'{}' with a limit of rows, accepted: '{}'", text_of({group}), group.name);
  }
  return groups;
}

bool holds(const std::vector<OpGroup>& groups, const model::Parameter& p) {
  return std::any_of(groups.begin(), groups.end(), [&](const OpGroup& group) { return holds(group, p); });
}

std::vector<std::string> residency_words() {
  std::vector<std::string> words{std::string(kDevice), std::string(kAuto)};
  for (std::string& word : part_words()) words.push_back(std::move(word));
  return words;
}

std::vector<OpGroup> residency_groups(std::string_view text) {
  std::vector<OpGroup> groups = parse_words(with_names(text), "keep on the host", residency_words());
  for (const OpGroup& group : groups) {
    if (group.above > 0) config_error("'{}' with a limit of rows, accepted: '{}'", text_of({group}), group.name);
    if (group.name == kDevice && (groups.size() > 1 || group != OpGroup{std::string(kDevice)}))
      config_error("'{}' beside other words, accepted: 'device' alone", text_of(groups));
  }
  std::erase_if(groups, [](const OpGroup& group) { return group.name == kDevice; });
  return groups;
}

std::map<ir::ValueId, Residency> residencies_of(const std::vector<model::Parameter>& parameters,
                                                const ir::Listing& listing, const std::vector<OpGroup>& groups) {
  std::map<ir::ValueId, Residency> residencies;
  for (const model::Parameter& p : parameters) {
    if (!p.trained || !model::is_matrix(p, listing)) continue;
    for (const OpGroup& group : groups) {
      if (!holds(group, p)) continue;
      Residency& residency = residencies[p.value];
      residency = std::max(residency, group.name == kAuto ? Residency::where_in_time : Residency::host);
    }
  }
  return residencies;
}

}  // namespace heddle::passes
