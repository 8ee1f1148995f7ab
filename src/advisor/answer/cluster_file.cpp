#include "advisor/answer/cluster_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <functional>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/formats/toml_text.h"

namespace heddle::advisor {

namespace {

constexpr int64_t kMostClusterBytes = 1 << 20;
constexpr int kMostTiers = 8;

using cost::Accelerator;
using cost::Tier;

/// A table of which every key must be known.
class Keys {
 public:
  Keys(const toml::table& table, std::string file) : table_(table), file_(std::move(file)) {}

  void number(const char* key, double least, double most, const std::function<void(double)>& take) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<double> value = node->value<double>();
    if (!value || node->is_boolean() || node->is_string() || !std::isfinite(*value) || *value < least ||
        *value > most)
      config_error("{}: {}, accepted: a number from {} to {}", place(*node), key, least, most);
    take(*value);
  }
  void whole(const char* key, int least, int most, int& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<int64_t> value = node->is_integer() ? node->value<int64_t>() : std::nullopt;
    if (!value || *value < least || *value > most)
      config_error("{}: {}, accepted: a whole number from {} to {}", place(*node), key, least, most);
    into = static_cast<int>(*value);
  }
  void text(const char* key, const std::function<void(const std::string&, const std::string& place)>& take) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<std::string> value = node->is_string() ? node->value<std::string>() : std::nullopt;
    if (!value || value->size() > 200) config_error("{}: {}, accepted: a short text", place(*node), key);
    take(*value, place(*node));
  }
  void flag(const char* key, bool& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_boolean()) config_error("{}: {}, accepted: true or false", place(*node), key);
    into = *node->value<bool>();
  }
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    return table_.get(key);
  }
  void refuse_others() const {
    for (const auto& [key, node] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      const std::string near = did_you_mean(key.str(), known_);
      config_error("{}: unknown key '{}'{}", place(node), key.str().substr(0, 60),
                   near.empty() ? fmt::format(", accepted: {}", fmt::join(known_, ", ")) : near);
    }
  }
  std::string place(const toml::node& node) const {
    return fmt::format("{}:{}:{}", file_, node.source().begin.line, node.source().begin.column);
  }

 private:
  const toml::table& table_;
  std::string file_;
  std::vector<std::string> known_;
};

toml::table parsed(const std::string& file) {
  const std::string text = read_file(file, kMostClusterBytes);
  formats::check_toml(text, file);
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    config_error("{}:{}:{}: {}", file, at.line, at.column,
                 formats::toml_complaint(error.description(), text, at.line));
  }
}

std::vector<std::string> accelerator_names() {
  std::vector<std::string> names;
  for (const Accelerator& a : cost::accelerators()) names.push_back(a.name);
  return names;
}

const Accelerator& known_accelerator(const std::string& name, const std::string& place) {
  if (const Accelerator* found = cost::accelerator_named(name)) return *found;
  // A part of one name alone, or the end of one: 910B, though there is a 910B3.
  const auto squeezed = [](const std::string& text) {
    std::string out;
    for (const char c : text)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  constexpr size_t kLeastBytes = 3;
  const std::string part = squeezed(name);
  const bool tells = part.size() >= kLeastBytes &&
                     std::any_of(part.begin(), part.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  std::vector<std::string> holding;
  std::string begun;  // the longest name that the text begins with: H100 of H100-SXM
  for (const std::string& known : accelerator_names()) {
    const std::string one = squeezed(known);
    if (part.size() > 1 && one.find(part) != std::string::npos) holding.push_back(known);
    if (part.starts_with(one) && one.size() > squeezed(begun).size()) begun = known;
  }
  std::vector<std::string> ending;
  for (const std::string& known : holding)
    if (squeezed(known).ends_with(part)) ending.push_back(known);
  if (tells && ending.size() == 1) holding = ending;
  if (tells && holding.size() == 1) return *cost::accelerator_named(holding.front());
  if (holding.size() > 1)
    config_error("{}: '{}' may be any of {}", place, name.substr(0, 60), fmt::join(holding, ", "));
  if (begun.empty() && holding.size() == 1) begun = holding.front();
  const std::string near =
      begun.empty() ? did_you_mean(name, accelerator_names()) : fmt::format(", did you mean '{}'?", begun);
  config_error("{}: no accelerator '{}'{}", place, name.substr(0, 60),
               near.empty() ? fmt::format(", accepted: {}", fmt::join(accelerator_names(), ", ")) : near);
}

cost::Family family_named(const std::string& name, const std::string& place) {
  static const std::vector<std::pair<std::string, cost::Family>> all = {
      {"ampere", cost::Family::ampere}, {"hopper", cost::Family::hopper}, {"blackwell", cost::Family::blackwell},
      {"ascend", cost::Family::ascend}, {"cdna3", cost::Family::cdna3},   {"gaudi", cost::Family::gaudi},
      {"tpu", cost::Family::tpu},       {"other", cost::Family::other}};
  std::vector<std::string> names;
  for (const auto& [known, family] : all) {
    if (known == name) return family;
    names.push_back(known);
  }
  config_error("{}: family '{}', accepted: {}", place, name.substr(0, 60), fmt::join(names, ", "));
}

Tier read_tier(const toml::table& table, const std::string& file, bool first, bool last, int below) {
  Keys keys(table, file);
  Tier tier{0, 0, 10};
  std::string name = "tier";
  keys.text("name", [&](const std::string& text, const std::string&) { name = text; });
  keys.whole("ranks", 1, 1 << 20, tier.ranks);
  keys.number("gb_per_s", 1e-3, 1e5, [&](double v) { tier.bytes_per_s = v * 1e9; });
  keys.number("latency_us", 0, 1e6, [&](double v) { tier.latency_us = v; });
  keys.number("oversubscription", 1, 1000, [&](double v) { tier.bytes_per_s /= v; });
  keys.text("wiring", [&](const std::string& text, const std::string& place) {
    if (text == "full")
      tier.wiring = cost::Wiring::full;
    else if (text == "mesh")
      tier.wiring = cost::Wiring::mesh;
    else if (text != "switched")
      config_error("{}: wiring '{}', accepted: switched, full, mesh", place, text);
    if (!first && text != "switched")
      config_error("{}: wiring '{}' of an outer tier, accepted: switched", place, text);
  });
  keys.whole("rows", 1, 1 << 20, tier.rows);
  keys.refuse_others();
  const std::string place = keys.place(table);
  if (tier.bytes_per_s <= 0) config_error("{}: {} lacks gb_per_s", place, name);
  if (last && tier.ranks > 0)
    config_error("{}: {} is the last tier and has ranks = {}, accepted: none, it holds all", place, name,
                 tier.ranks);
  if (!last && tier.ranks <= below)
    config_error("{}: {} has ranks = {}, accepted: more than the {} of the tier inside", place, name, tier.ranks,
                 below);
  if (!last && below > 0 && tier.ranks % below != 0)
    config_error("{}: {} has ranks = {}, accepted: a multiple of {}", place, name, tier.ranks, below);
  if (tier.wiring == cost::Wiring::mesh && (tier.ranks <= 0 || tier.ranks % tier.rows != 0))
    config_error("{}: {} has {} rows of {} ranks, accepted: a divisor", place, name, tier.rows, tier.ranks);
  return tier;
}

bool is_file(const std::string& name) { return name.ends_with(".toml") || name.find('/') != std::string::npos; }

}  // namespace

Accelerator read_cluster(const std::string& name) {
  if (!is_file(name)) return known_accelerator(name, "--cluster");
  const toml::table table = parsed(name);
  Keys keys(table, name);
  Accelerator a;
  keys.text("device",
            [&](const std::string& text, const std::string& place) { a = known_accelerator(text, place); });
  keys.text("name", [&](const std::string& text, const std::string&) { a.name = text; });
  keys.text("family",
            [&](const std::string& text, const std::string& place) { a.family = family_named(text, place); });
  keys.number("bf16_tflops", 1e-3, 1e6, [&](double v) { a.bf16_flops = v * 1e12; });
  keys.number("fp8_tflops", 0, 1e6, [&](double v) { a.fp8_flops = v * 1e12; });
  keys.number("fp4_tflops", 0, 1e6, [&](double v) { a.fp4_flops = v * 1e12; });
  keys.number("memory_gib", 1e-3, 1e6, [&](double v) { a.memory_bytes = v * (1 << 30); });
  keys.number("memory_gb_per_s", 1e-3, 1e6, [&](double v) { a.memory_bytes_per_s = v * 1e9; });
  keys.whole("units", 1, 1 << 20, a.units);
  keys.number("host_us", 0, 1e6, [&](double v) { a.host_us = v; });
  keys.number("host_gb_per_s", 1e-3, 1e6, [&](double v) { a.host_bytes_per_s = v * 1e9; });
  keys.number("host_memory_gib", 1e-3, 1e6, [&](double v) { a.host_memory_bytes = v * (1 << 30); });
  keys.number("host_memory_gb_per_s", 1e-3, 1e6, [&](double v) { a.host_memory_bytes_per_s = v * 1e9; });
  if (const toml::node* node = keys.find("tier")) {
    const toml::array* tiers = node->as_array();
    if (tiers == nullptr || !tiers->is_homogeneous(toml::node_type::table) || tiers->size() < 2 ||
        tiers->size() > kMostTiers)
      config_error("{}: tier, accepted: 2 to {} tables [[tier]], from the inside out", keys.place(*node),
                   kMostTiers);
    a.farther.clear();
    int below = 0;
    for (size_t i = 0; i < tiers->size(); ++i) {
      const Tier tier = read_tier(*tiers->get(i)->as_table(), name, i == 0, i + 1 == tiers->size(), below);
      below = tier.ranks;
      if (i == 0)
        a.inner = tier;
      else if (i == 1)
        a.outer = tier;
      else
        a.farther.push_back(tier);
    }
  }
  keys.refuse_others();
  const std::pair<const char*, double> needed[] = {{"bf16_tflops", a.bf16_flops},
                                                   {"memory_gib", a.memory_bytes},
                                                   {"memory_gb_per_s", a.memory_bytes_per_s},
                                                   {"units", a.units},
                                                   {"tier", a.inner.bytes_per_s}};
  for (const auto& [key, value] : needed)
    if (value <= 0) config_error("{}: lacks {}, and no device that it is known of", name, key);
  if (a.name.empty()) a.name = std::filesystem::path(name).stem().string();
  return a;
}

void read_restriction(const std::string& words, search::Restriction& into, search::Job& job) {
  search::Software& software = job.software;
  // recompute=full/2 is no path: what stands before a '=' with neither slash nor dot is an axis.
  const size_t equals = words.find('=');
  if (!is_file(words) || words.substr(0, equals).find_first_of("/.") == std::string::npos) {
    into.set(words);
    return;
  }
  const toml::table table = parsed(words);
  for (const auto& [key, node] : table) {
    const auto place = [&](const toml::node& at) {
      return fmt::format("{}:{}:{}", words, at.source().begin.line, at.source().begin.column);
    };
    if (key.str() == "software" && node.is_table()) {
      Keys keys(*node.as_table(), words);
      keys.number("state_bytes", 0, 64, [&](double v) { software.state_bytes = v; });
      keys.number("gradient_bytes", 0, 64, [&](double v) { software.gradient_bytes = v; });
      keys.number("reduce_bytes", 0, 64, [&](double v) { software.reduce_bytes = v; });
      keys.number("captured", 0, 1, [&](double v) { software.captured = v; });
      keys.number("attention_speed", 0.01, 100, [&](double v) { software.attention_speed = v; });
      keys.flag("sharded_weights", software.sharded_weights);
      keys.flag("sharded_gradients", software.sharded_gradients);
      keys.flag("sharded_states", software.sharded_states);
      keys.flag("sequence_parallel", software.sequence_parallel);
      keys.flag("narrow_gates", software.narrow_gates);
      keys.flag("fused_loss", software.fused_loss);
      keys.flag("fused_elementwise", software.fused_elementwise);
      keys.flag("overlap_tp", software.overlap_tp);
      keys.flag("overlap_dp", software.overlap_dp);
      keys.flag("overlap_pp", software.overlap_pp);
      bool once_a_node = search::once_a_node(job), by_heads = job.context == model::Context::ulysses;
      keys.flag("once_a_node", once_a_node);
      keys.flag("context_all_to_all", by_heads);
      job.exchange.topology = once_a_node ? ir::Topology::node : ir::Topology::plain;
      if (by_heads != (job.context == model::Context::ulysses))
        job.context = by_heads ? model::Context::ulysses : model::Context::ring;
      keys.refuse_others();
      continue;
    }
    std::string list;
    const auto word = [&, key = key.str()](const toml::node& value) {
      list += list.empty() ? "" : ",";
      if (value.is_integer())
        list += fmt::format("{}", *value.value<int64_t>());
      else if (value.is_boolean())
        list += *value.value<bool>() ? "1" : "0";
      else if (value.is_string())
        list += *value.value<std::string>();
      else
        config_error("{}: {}, accepted: whole numbers and words, or a list of them", place(value), key);
    };
    if (const toml::array* array = node.as_array()) {
      for (const toml::node& each : *array) word(each);
      if (array->empty()) config_error("{}: {} is empty, accepted: at least one value", place(node), key.str());
    } else {
      word(node);
    }
    try {
      into.set(fmt::format("{}={}", key.str(), list));
    } catch (const ConfigError& error) {
      config_error("{}: {}", place(node), error.what());
    }
  }
}

Calibration read_calibration(const std::string& file) {
  return file.empty() ? Calibration::built_in()
                      : Calibration::read(read_file(file, kMostClusterBytes), file, Figure::time);
}

}  // namespace heddle::advisor
