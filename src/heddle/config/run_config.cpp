// Reads and checks a run's configuration. The only file that includes toml++, for it compiles slowly.
#include "heddle/config/run_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"
#include "heddle/config/exact_layout.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/toml_text.h"
#include "heddle/model/keys.h"

namespace heddle::config {

namespace {

using Kind = Setting::Kind;

// What a word of a configuration may not hold: it goes into messages, the report and names of files.
std::string forbidden(std::string_view word, bool text) {
  for (size_t at = 0; at < word.size();) {
    const Letter letter = first_letter(word.substr(at));
    if (!letter.valid) return fmt::format("the byte '{}', which is no UTF-8", escaped(word.substr(at, 1)));
    if (is_control(letter.code) && (!text || letter.code == 0)) {
      return fmt::format("the control character '{}'", escaped(word.substr(at, letter.bytes)));
    }
    at += letter.bytes;
  }
  return "";
}

std::string leaf_of(std::string_view key) { return std::string(key.substr(key.rfind('.') + 1)); }
std::string section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(key.substr(0, dot));
}

// Near in the same section first, then the same or a near last part in another one.
std::string suggestion(const std::string& key) {
  std::vector<std::string> siblings, leaves;
  for (const std::string& other : setting_keys()) {
    if (section_of(other) == section_of(key)) siblings.push_back(other);
    leaves.push_back(leaf_of(other));
  }
  std::vector<std::string> names;
  for (const std::string& other : siblings) names.push_back(leaf_of(other));
  std::string near = nearest_name(leaf_of(key), names);
  if (!near.empty())
    return fmt::format(", did you mean '{}{}{}'?", section_of(key), section_of(key).empty() ? "" : ".", near);
  for (const std::string& other : setting_keys()) {
    if (leaf_of(other) == leaf_of(key)) return fmt::format(", did you mean '{}'?", other);
  }
  return did_you_mean(key, setting_keys());
}

class TomlReader {
 public:
  TomlReader(std::string file) : file_(std::move(file)) {}

  RunConfig read(std::string_view text, const std::vector<std::string>& overrides,
                 std::vector<std::string>* warnings) {
    formats::check_toml(text, file_);
    toml::table table;
    try {
      table = toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      config_error("{}:{}:{}: {}", file_, error.source().begin.line, error.source().begin.column,
                   formats::toml_complaint(error.description()));
    }
    collect(table, "");
    const size_t of_file = given_.size();
    for (const std::string& given : overrides) collect(given);
    settle_length(of_file);
    // The base of the model first, then what is set on it, in the order in which it came.
    if (const auto at = bases_.find("model.preset"); at != bases_.end()) {
      if (bases_.contains("model.hf")) {
        config_error("{}: model.preset and model.hf exclude one another", place_of("model.hf"));
      }
      const std::vector<std::string> names = preset_names();
      if (std::find(names.begin(), names.end(), at->second) == names.end()) {
        config_error("{}: no preset '{}', accepted: {}{}", place_of("model.preset"), shown(at->second),
                     fmt::join(names, ", "), did_you_mean(at->second, names));
      }
      config_.model = preset(at->second);
    }
    if (const auto at = bases_.find("model.hf"); at != bases_.end()) {
      try {
        config_.model = read_huggingface_config(at->second, warnings);
      } catch (const ConfigError& error) {
        config_error("{}: model.hf: {}", place_of("model.hf"), error.what());
      }
      for (const Setting& s : settings()) {  // the bounds that a file of ours is held to
        if (s.key.starts_with("model.") && (!s.present || s.present(config_)))
          hold(s, place_of("model.hf"), s.get(config_));
      }
    }
    for (const auto& [setting, value] : given_) setting->set(config_, value);
    refuse_foreign_keys();
    model::reset_foreign_keys(config_.model);
    check();
    if (warnings != nullptr && config_.model.router_is_without_gradient()) {
      warnings->push_back(
          fmt::format("{}: model.norm_topk_prob with model.num_experts_per_tok = 1 makes every gate 1: the loss of "
                      "tokens does not "
                      "reach the router, which learns from balance losses alone",
                      place_of("model.norm_topk_prob")));
    }
    return config_;
  }

 private:
  std::string place_of(const std::string& key) const {
    const auto at = places_.find(key);
    return at == places_.end() ? file_ : at->second;
  }

  void collect(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      const toml::source_position at = key.source().begin;
      const std::string place = fmt::format("{}:{}:{}", file_, at.line, at.column);
      if (const toml::table* inner = node.as_table()) {
        if (const Setting* setting = find_setting(name)) {
          config_error("{}: {} takes {}, found a table", place, name, setting->accepted());
        }
        bool known = false;
        std::vector<std::string> sections;
        for (const std::string& other : setting_keys()) {
          const std::string section = section_of(other);
          known = known || section == name;
          if (!section.empty()) sections.push_back(section);
        }
        if (!known) config_error("{}: unknown section '{}'{}", place, shown(name), did_you_mean(name, sections));
        collect(*inner, name + ".");
        continue;
      }
      const Setting* setting = find(name, place);
      places_[name] = place;
      if (setting == nullptr) {
        const toml::value<std::string>* word = node.as_string();
        if (word == nullptr) config_error("{}: {} takes a text, found {}", place, name, kind_of(node));
        bases_[name] = word->get();
        continue;
      }
      accept(*setting, place, value_of(*setting, node, place));
    }
  }

  static std::string kind_of(const toml::node& node) {
    switch (node.type()) {
      case toml::node_type::table: return "a table";
      case toml::node_type::array: return "an array";
      case toml::node_type::string: return fmt::format("the text '{}'", shown(node.as_string()->get()));
      case toml::node_type::integer: return fmt::format("the integer {}", node.as_integer()->get());
      case toml::node_type::floating_point: return fmt::format("the number {}", node.as_floating_point()->get());
      case toml::node_type::boolean: return node.as_boolean()->get() ? "true" : "false";
      default: return "a date or time";
    }
  }

  static Value value_of(const Setting& setting, const toml::node& node, const std::string& place) {
    switch (setting.kind) {
      case Kind::boolean:
        if (const auto* v = node.as_boolean()) return v->get();
        break;
      case Kind::integer:
        if (const auto* v = node.as_integer()) return v->get();
        break;
      case Kind::number:
        if (const auto* v = node.as_floating_point()) return v->get();
        if (const auto* v = node.as_integer()) return static_cast<double>(v->get());
        break;
      case Kind::word:
        if (const auto* v = node.as_string()) return v->get();
        break;
      case Kind::bytes:
        if (const auto* v = node.as_integer()) return v->get();
        if (const auto* v = node.as_string()) return bytes_of(setting, v->get(), place);
        break;
      case Kind::list:
        if (const auto* v = node.as_string()) return v->get();
        if (const auto* v = node.as_array()) return list_of(setting, *v, place);
        break;
    }
    config_error("{}: {} takes {}, found {}", place, setting.key, setting.accepted(), kind_of(node));
  }

  static Value list_of(const Setting& setting, const toml::array& array, const std::string& place) {
    std::string text;
    for (const toml::node& node : array) {
      const auto* word = node.as_string();
      if (word == nullptr) {
        config_error("{}: {} takes {}, found {} in the list", place, setting.key, setting.accepted(),
                     kind_of(node));
      }
      text += (text.empty() ? "" : ",") + word->get();
    }
    return text;
  }

  static Value bytes_of(const Setting& setting, const std::string& text, const std::string& place) {
    try {
      return parse_bytes(text);
    } catch (const ConfigError& error) {
      config_error("{}: {}: {}", place, setting.key, error.what());
    }
  }

  void collect(const std::string& given) {
    const std::string place = fmt::format("--set {}", shown(given));
    const size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0) config_error("{}: expected key=value", place);
    const std::string key = given.substr(0, equals);
    std::string text = given.substr(equals + 1);
    const Setting* setting = find(key, place);
    places_[key] = place;
    if (text.size() >= 2 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'')) {
      text = text.substr(1, text.size() - 2);
    }
    if (setting == nullptr) {
      // The base named last holds.
      bases_.erase(key == "model.preset" ? "model.hf" : "model.preset");
      bases_[key] = text;
      return;
    }
    const auto wrong = [&] {
      config_error("{}: {} takes {}, found '{}'", place, key, setting->accepted(), shown(text));
    };
    const auto parse = [&]<class T>(T number) -> Value {
      std::erase(text, '_');
      const char* end = text.data() + text.size();
      const auto result = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, number);
      if (result.ec != std::errc() || result.ptr != end) wrong();
      return number;
    };
    switch (setting->kind) {
      case Kind::boolean:
        if (text != "true" && text != "false") wrong();
        return accept(*setting, place, text == "true");
      case Kind::integer: return accept(*setting, place, parse(int64_t{}));
      case Kind::number: return accept(*setting, place, parse(double{}));
      case Kind::word:
      case Kind::list: return accept(*setting, place, text);
      case Kind::bytes: return accept(*setting, place, bytes_of(*setting, text, place));
    }
  }

  /// Null for the keys that name a base of the model.
  static const Setting* find(const std::string& key, const std::string& place) {
    if (key == "model.preset" || key == "model.hf") return nullptr;
    const Setting* setting = find_setting(key);
    if (setting == nullptr) config_error("{}: unknown key '{}'{}", place, shown(key), suggestion(key));
    return setting;
  }

  void accept(const Setting& s, const std::string& place, const Value& value) {
    hold(s, place, value);
    given_.emplace_back(&s, value);
  }

  static void hold(const Setting& s, const std::string& place, const Value& value) {
    if (const auto* number = std::get_if<double>(&value)) {
      if (!std::isfinite(*number)) config_error("{}: {} is {}, must be {}", place, s.key, *number, s.accepted());
    }
    if (s.kind == Kind::word || s.kind == Kind::list) {
      const auto& word = std::get<std::string>(value);
      if (s.kind == Kind::word && !s.words.empty() &&
          std::find(s.words.begin(), s.words.end(), word) == s.words.end()) {
        config_error("{}: {} is '{}', accepted: {}{}", place, s.key, shown(word), s.accepted(),
                     did_you_mean(word, s.words));
      }
      if (word.size() > 4096)
        config_error("{}: {} has {} bytes, at most 4096 are accepted", place, s.key, word.size());
      if (const std::string found = forbidden(word, s.text); !found.empty()) {
        config_error("{}: {} is '{}', which holds {}", place, s.key, shown(word), found);
      }
      try {
        if (s.check) s.check(word);
      } catch (const ConfigError& error) {
        config_error("{}: {}: {}", place, s.key, escaped(error.what()));
      }
    } else if (s.kind == Kind::boolean) {
      if (s.words == std::vector<std::string>{"true"} && !std::get<bool>(value)) {
        config_error("{}: {} is false, accepted: true (there is no other mode)", place, s.key);
      }
    } else {
      const double number = std::holds_alternative<double>(value) ? std::get<double>(value)
                                                                  : static_cast<double>(std::get<int64_t>(value));
      if (number < s.least || number > s.most) {
        config_error("{}: {} is {}, must be {}", place, s.key, s.text_of(value), s.accepted());
      }
    }
  }

  // A run is counted in steps or ends by the clock, as the layer says that was read last: the file, or what was set
  // over it. Keys of the other measure are left out where an earlier layer gave them, and refused elsewhere.
  void settle_length(size_t of_file) {
    constexpr std::string_view kSteps = "train.steps", kMinutes = "train.minutes";
    const auto layer = [&](std::string_view key) {  // 0: not given, 1: in the file, 2: set over it
      int found = 0;
      for (size_t i = 0; i < given_.size(); ++i)
        if (given_[i].first->key == key) found = i < of_file ? 1 : 2;
      return found;
    };
    const int steps = layer(kSteps), minutes = layer(kMinutes);
    if (minutes > 0 && steps == minutes) {
      config_error(
          "{}: train.minutes and train.steps are both given; a run is as long as the one or the other says",
          place_of(std::string(kMinutes)));
    }
    const bool by_clock = minutes > steps;
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPairs{
        {{kSteps, kMinutes},
         {"train.warmup_steps", "train.warmup_fraction"},
         {"train.decay_steps", "train.decay_fraction"}}};
    for (const auto& [of_steps, of_clock] : kPairs) {
      const std::string other(by_clock ? of_steps : of_clock), own(by_clock ? of_clock : of_steps);
      if (layer(other) > 0 && layer(other) >= std::max(steps, minutes)) {
        config_error("{}: {} is of a run {}, and this one's length is {}; set {}", place_of(other), other,
                     by_clock ? "that is counted in steps" : "by the clock", by_clock ? kMinutes : kSteps, own);
      }
      std::erase_if(given_, [&](const auto& one) { return one.first->key == other; });
    }
    if (by_clock) config_.train.steps = 0;
  }

  // A key of the other kind of attention would do nothing.
  void refuse_foreign_keys() const {
    for (const auto& [setting, value] : given_) {
      if (!setting->key.starts_with("model.") || setting->present(config_)) continue;
      config_error("{}: {} is of {} attention, and model.attention is \"{}\"", place_of(setting->key), setting->key,
                   config_.model.is_latent() ? "grouped" : "latent",
                   config_.model.is_latent() ? "latent" : "grouped");
    }
  }

  // What no key alone can tell.
  void check() const {
    try {
      model::validate(config_.model);
    } catch (const ConfigError& error) {  // "model.KEY is …"
      const std::string what = error.what();
      config_error("{}: {}", place_of(what.substr(0, what.find(' '))), what);
    }
    const RunConfig& c = config_;
    if (c.train.sequence_length > c.model.max_position_embeddings) {
      config_error("{}: train.sequence_length is {}, more than model.max_position_embeddings ({})",
                   place_of("train.sequence_length"), c.train.sequence_length, c.model.max_position_embeddings);
    }
    check_mesh();
    if (c.plan.exact_sums) check_exact_sums();
    if (c.train.global_batch % c.train.microbatch != 0) {
      config_error("{}: train.global_batch is {}, not a multiple of train.microbatch ({})",
                   place_of("train.global_batch"), c.train.global_batch, c.train.microbatch);
    }
    if (c.train.global_batch % (c.train.microbatch * c.data_ranks()) != 0) {
      config_error("{}: train.global_batch is {}, not a multiple of train.microbatch × {} ({} × {})",
                   place_of("train.global_batch"), c.train.global_batch,
                   c.plan.mesh.dp > 0 ? "mesh.dp" : "the data parallel ranks that mesh.ranks leaves",
                   c.train.microbatch, c.data_ranks());
    }
    if (c.data.vocabulary > c.model.vocab_size) {
      config_error("{}: data.vocabulary is {}, more ids than model.vocab_size ({})", place_of("data.vocabulary"),
                   c.data.vocabulary, c.model.vocab_size);
    }
    if (c.train.min_learning_rate > c.train.learning_rate) {
      config_error("{}: train.min_learning_rate is {}, more than train.learning_rate ({})",
                   place_of("train.min_learning_rate"), c.train.min_learning_rate, c.train.learning_rate);
    }
    if (c.device.dtype == Dtype::f64 && c.device.backend != "reference") {
      config_error("{}: device.dtype is f64, which needs device.backend = \"reference\"", place_of("device.dtype"));
    }
    if (c.name.empty() || c.name.find('/') != std::string::npos || c.name.starts_with('.')) {
      config_error("{}: name is '{}', must be the name of a folder (no '/', no '.' in front)", place_of("name"),
                   shown(c.name));
    }
    if (c.data.source.empty()) config_error("{}: data.source is empty", place_of("data.source"));
  }

  void check_exact_sums() const {
    const std::string why = why_not_exact(config_.model, config_.degrees());
    if (!why.empty()) config_error("{}: train.exact_sums does not hold with {}", place_of("train.exact_sums"), why);
  }

  void check_mesh() const {
    const plan::Degrees& m = config_.plan.mesh;
    const int64_t asked = config_.mesh_ranks, others = config_.copy_ranks();
    const std::string named =
        fmt::format("mesh.tp × mesh.cp × mesh.pp ({} × {} × {} = {})", m.tp, m.cp, m.pp, others);
    if (m.dp == 0 && asked % others != 0) {
      config_error("{}: mesh.ranks is {}, not a multiple of {}", place_of("mesh.ranks"), asked, named);
    }
    if (m.dp > 0 && asked > 0 && asked != others * m.dp) {
      config_error("{}: mesh.ranks is {}, but mesh.dp is {}, times {}: {} ranks", place_of("mesh.ranks"), asked,
                   m.dp, named, others * m.dp);
    }
    if (config_.ranks() > kMostRanks) {
      config_error("{}: the degrees of mesh multiply to {} ranks, at most {} are accepted", place_of("mesh.dp"),
                   config_.ranks(), kMostRanks);
    }
  }

  std::string file_;
  RunConfig config_;
  std::map<std::string, std::string> places_;  // of each key given
  std::map<std::string, std::string> bases_;   // model.preset or model.hf
  std::vector<std::pair<const Setting*, Value>> given_;
};

}  // namespace

RunConfig parse_run_config(std::string_view text, const std::string& place,
                           const std::vector<std::string>& overrides, std::vector<std::string>* warnings) {
  if (text.size() > static_cast<size_t>(kMostConfigBytes)) {
    config_error("{}: larger than {} bytes, no configuration", place, kMostConfigBytes);
  }
  return TomlReader(place).read(text, overrides, warnings);
}

RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          std::vector<std::string>* warnings) {
  std::ifstream file(path, std::ios::binary);
  if (!file) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text(static_cast<size_t>(kMostConfigBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_run_config(text, path, overrides, warnings);
}

}  // namespace heddle::config
