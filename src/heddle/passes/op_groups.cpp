#include "heddle/passes/op_groups.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "heddle/base/real_text.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::Work;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Group {
  GroupName name;
  std::string meaning;
  bool (*holds)(const Op& op);
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {GroupName::norm, "normed rows, of layers and latents",
       [](const Op& op) { return op.def->work == Work::norm; }},
      {GroupName::activation, "silu(gate) * up of MLPs and experts",
       [](const Op& op) {
         return op.def->work == Work::activation && is_one_of(op.part, {"mlp", "shared", "expert_up"});
       }},
      {GroupName::gather, "rows that come from other ranks of tp and cp, and keys and values made from them",
       [](const Op& op) {
         return op.def->work == Work::gather || op.def->work == Work::heads || op.part == "sequence_keys";
       }},
      {GroupName::mla_up,
       "queries, keys and values from their latents, or from a layer's normed rows, with positions",
       [](const Op& op) {
         return is_one_of(op.part, {"mla_up", "sequence_keys"}) && op.def->work != Work::heads;
       }},
      {GroupName::attention, "the core of attention",
       [](const Op& op) { return op.def->work == Work::attention || op.def->work == Work::heads; }},
      {GroupName::router, "logits, scores and gates; never the choice",
       [](const Op& op) { return op.part == "router"; }},
      {GroupName::permute, "rows in the experts' order, from other ranks where experts are spread",
       [](const Op& op) { return op.def->work == Work::permute; }},
      {GroupName::expert_up, "the routed experts' first product and activation",
       [](const Op& op) { return op.part == "expert_up"; }},
      {GroupName::shared, "the shared expert", [](const Op& op) { return op.part == "shared"; }},
      {GroupName::mlp, "the dense layers' MLP", [](const Op& op) { return op.part == "mlp"; }},
      {GroupName::moe, "all of a layer's experts, but the choice",
       [](const Op& op) {
         return is_one_of(op.part, {"router", "expert_up", "expert_down", "shared"}) ||
                op.def->work == Work::permute;
       }},
      {GroupName::layer, "all but the layer's input and the choice of experts", [](const Op&) { return true; }},
  };
  return all;
}

struct Level {
  std::string name;
  std::vector<std::string> groups;
};

const std::vector<Level>& levels() {
  static const std::vector<Level> all{{"light", {"activation", "permute", "router"}},
                                      {"medium", {"activation", "permute", "router", "expert_up", "shared"}},
                                      {"full", {"moe"}},
                                      // MindSpeed's --moe-zero-memory, by what it keeps of a layer's routed rows.
                                      {"zero_memory_level0", {"activation", "permute"}},
                                      {"zero_memory_level1", {"activation", "permute", "expert_up", "router"}}};
  return all;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::optional<int> layer_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::optional<double> limit_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = read_real(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number > 0 && number < 1e6))
    return std::nullopt;
  return number;
}

}  // namespace

const std::vector<GroupWord>& group_words() {
  static const std::vector<GroupWord> all = [] {
    std::vector<GroupWord> words;
    for (const Group& group : groups()) words.push_back({std::string(word_of(group.name)), group.meaning});
    for (const Level& level : levels())
      words.push_back({level.name, fmt::format("{}", fmt::join(level.groups, ", "))});
    return words;
  }();
  return all;
}

std::vector<OpGroup> parse_groups(std::string_view text, std::string_view purpose,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> names = more;
  for (const GroupWord& word : group_words()) names.push_back(word.name);
  return parse_words(text, purpose, names);
}

std::vector<OpGroup> parse_words(std::string_view text, std::string_view purpose,
                                 const std::vector<std::string>& names) {
  std::vector<OpGroup> chosen;
  if (trimmed(text).empty()) return chosen;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view item = trimmed(text.substr(from, comma - from));
    from = comma + 1;
    const size_t above = std::min(item.find('>'), item.size());
    const std::string_view named = trimmed(item.substr(0, above));
    const size_t colon = std::min(named.find(':'), named.size());
    OpGroup group{std::string(named.substr(0, colon))};
    if (std::find(names.begin(), names.end(), group.name) == names.end()) {
      config_error("'{}' is nothing to {}, accepted: {}{}", group.name.substr(0, 40), purpose,
                   fmt::join(names, ", "), did_you_mean(group.name, names));
    }
    if (above < item.size()) {
      const auto limit = limit_number(trimmed(item.substr(above + 1)));
      if (!limit) {
        config_error("'{}' is no limit of rows, accepted: a number above 0, as in '{}>1.25'", item.substr(0, 60),
                     group.name);
      }
      group.above = *limit;
    }
    if (colon < named.size()) {
      const std::string_view range = named.substr(colon + 1);
      const size_t dash = std::min(range.find('-'), range.size());
      const auto first = layer_number(range.substr(0, dash));
      const auto last = dash < range.size() ? layer_number(range.substr(dash + 1)) : first;
      if (!first || !last || *first > *last) {
        config_error("'{}' is no range of layers, accepted: '{}:3' or '{}:0-3'", named.substr(0, 60), group.name,
                     group.name);
      }
      group.first_layer = *first;
      group.last_layer = *last;
    }
    chosen.push_back(group);
  }
  return chosen;
}

std::string text_of(const std::vector<OpGroup>& chosen) {
  std::string text;
  for (const OpGroup& group : chosen) {
    if (!text.empty()) text += ", ";
    text += group.name;
    const bool to_the_end = group.last_layer == OpGroup().last_layer;
    if (group.first_layer == group.last_layer) {
      text += fmt::format(":{}", group.first_layer);
    } else if (group.first_layer != 0 || !to_the_end) {
      text += fmt::format(":{}-{}", group.first_layer, group.last_layer);
    }
    if (group.above > 0) text += fmt::format(">{}", group.above);
  }
  return text;
}

std::optional<double> limit_of(const std::vector<OpGroup>& chosen, const ir::Op& op, int layer) {
  std::optional<double> least;
  for (const OpGroup& group : chosen) {
    if (layer < group.first_layer || layer > group.last_layer) continue;
    const auto is_of = [&](const std::string& name) {
      const auto named =
          std::find_if(groups().begin(), groups().end(), [&](const Group& g) { return word_of(g.name) == name; });
      return named != groups().end() && named->holds(op);
    };
    const auto level =
        std::find_if(levels().begin(), levels().end(), [&](const Level& l) { return l.name == group.name; });
    const bool holds = level == levels().end() ? is_of(group.name)
                                               : std::any_of(level->groups.begin(), level->groups.end(), is_of);
    if (holds) least = std::min(least.value_or(group.above), group.above);
  }
  return least;
}

}  // namespace heddle::passes
