// Reads and checks a run's configuration. The only file that includes toml++, for it compiles slowly.
#include "heddle/config/run_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "heddle/base/count_text.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/base/text.h"
#include "heddle/base/utf8.h"
#include "heddle/config/hardly_meant.h"
#include "heddle/config/model_json.h"
#include "heddle/config/placed_config.h"
#include "heddle/config/retired_keys.h"
#include "heddle/config/setting_names.h"
#include "heddle/formats/toml_text.h"
#include "heddle/model/keys.h"

namespace heddle::config {

namespace {

using SettingKind = Setting::Kind;

// The byte or character that a word of a configuration may not hold, or "". Words go into messages, the report and
// names of files.
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

class TomlReader {
 public:
  TomlReader(const std::string& file) { told_.file = file; }

  PlacedConfig read(std::string_view text, const std::vector<std::string>& overrides,
                    std::vector<std::string>* warnings) {
    formats::check_toml(text, file_);
    toml::table table;
    try {
      table = toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      config_error("{}:{}:{}: {}", file_, at.line, at.column,
                   formats::toml_complaint(error.description(), text, at.line));
    }
    collect(table, "");
    size_t of_file = given_.size();
    for (const std::string& given : overrides) collect(given);
    settle_length(of_file);
    name_model_by_start();
    const bool names_model = !bases_.empty() || std::any_of(given_.begin(), given_.end(), [](const auto& one) {
      return one.first->key.starts_with("model.");
    });
    if (!base_over_file_.empty()) leave_out_model(of_file, warnings);
    // The base of the model first, then what is set on it, in the order in which it came.
    if (const auto at = bases_.find("model.preset"); at != bases_.end()) {
      if (bases_.contains("model.hf")) {
        config_error("{}: model.preset and model.hf exclude one another", place_of("model.hf"));
      }
      try {
        config_.model = preset(at->second);
      } catch (const ConfigError& error) {
        config_error("{}: {}", place_of("model.preset"), error.what());
      }
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
    told_.check();
    if (warnings != nullptr) {
      if (!names_model) {
        warnings->push_back(
            fmt::format("{}: no key of [model] is given, and the model has the usual sizes ({} layers, hidden {}); "
                        "model.preset, model.hf or keys of its own name another",
                        file_, config_.model.num_hidden_layers, config_.model.hidden_size));
      }
      for (const Remark& remark : hardly_meant(config_))
        warnings->push_back(fmt::format("{}: {}", place_of(remark.key), remark.text));
    }
    return told_;
  }

 private:
  const std::string& place_of(const std::string& key) const { return told_.place_of(key); }

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
      if (passes_over(name, place, text_of(node))) continue;
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

  static std::string text_of(const toml::node& node) {
    const toml::value<bool>* boolean = node.as_boolean();
    return boolean == nullptr ? kind_of(node) : boolean->get() ? "true" : "false";
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
      case SettingKind::boolean:
        if (const auto* v = node.as_boolean()) return v->get();
        break;
      case SettingKind::integer:
        if (const auto* v = node.as_integer()) return v->get();
        if (const auto* v = node.as_floating_point()) {  // 1e6
          if (const double n = v->get(); n == std::floor(n) && std::abs(n) < 0x1p63) return static_cast<int64_t>(n);
        }
        if (const auto* v = node.as_string()) {  // "500M"
          if (const std::optional<int64_t> n = count_of(v->get())) return *n;
        }
        break;
      case SettingKind::number:
        if (const auto* v = node.as_floating_point()) return v->get();
        if (const auto* v = node.as_integer()) return static_cast<double>(v->get());
        break;
      case SettingKind::word:
        if (const auto* v = node.as_string()) return v->get();
        if (const auto* v = node.as_integer(); v != nullptr && setting.numbers) return std::to_string(v->get());
        break;
      case SettingKind::bytes:
        if (const auto* v = node.as_integer()) return v->get();
        if (const auto* v = node.as_string()) return bytes_of(setting, v->get(), place);
        break;
      case SettingKind::bytes_or_share:
        if (const auto* v = node.as_integer()) return v->get();
        if (const auto* v = node.as_string()) return bytes_or_share_of(setting, v->get(), place);
        break;
      case SettingKind::list:
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

  // A share stays a text, as its number is written: what it is a share of is known elsewhere.
  static Value bytes_or_share_of(const Setting& setting, const std::string& text, const std::string& place) {
    const auto wrong = [&] {
      config_error("{}: {} takes {}, found '{}'", place, setting.key, setting.accepted(), shown(text));
    };
    if (!text.ends_with('%')) {
      try {
        return parse_bytes(text);
      } catch (const ConfigError&) {
        wrong();
      }
    }
    const std::optional<double> percent = number_of(text.substr(0, text.size() - 1));
    if (!percent || !(*percent > 0) || *percent > 100) wrong();
    return text;
  }

  void collect(const std::string& given) {
    const std::string place = fmt::format("--set {}", shown(given));
    const size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0) config_error("{}: expected key=value", place);
    const std::string key = given.substr(0, equals);
    std::string text = given.substr(equals + 1);
    if (passes_over(key, place, text)) return;
    const Setting* setting = find(key, place);
    places_[key] = place;
    if (text.size() >= 2 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'')) {
      text = text.substr(1, text.size() - 2);
    }
    if (setting == nullptr) {
      // The base named last holds.
      base_over_file_ = place;
      bases_.erase(key == "model.preset" ? "model.hf" : "model.preset");
      bases_[key] = text;
      return;
    }
    const auto wrong = [&] {
      config_error("{}: {} takes {}, found '{}'", place, key, setting->accepted(), shown(text));
    };
    const auto number = [&](const auto& parsed) -> Value {
      if (!parsed) wrong();
      return *parsed;
    };
    switch (setting->kind) {
      case SettingKind::boolean:
        if (!same_name(text, "true") && !same_name(text, "false")) wrong();
        return accept(*setting, place, same_name(text, "true"));
      case SettingKind::integer: return accept(*setting, place, number(count_of(text)));
      case SettingKind::number: return accept(*setting, place, number(number_of(text)));
      case SettingKind::word:
      case SettingKind::list: return accept(*setting, place, text);
      case SettingKind::bytes: return accept(*setting, place, bytes_of(*setting, text, place));
      case SettingKind::bytes_or_share: return accept(*setting, place, bytes_or_share_of(*setting, text, place));
    }
  }

  /// True if the key is a retired one with the value that means nothing.
  static bool passes_over(const std::string& key, const std::string& place, const std::string& value) {
    const RetiredKey* retired = find_retired_key(key);
    if (retired == nullptr) return false;
    if (value != retired->usual) config_error("{}: {} = {}: {}", place, key, shown(value), retired->why);
    return true;
  }

  /// Null for the keys that name a base of the model.
  static const Setting* find(const std::string& key, const std::string& place) {
    if (key == "model.preset" || key == "model.hf") return nullptr;
    const Setting* setting = find_setting(key);
    if (setting == nullptr) config_error("{}: unknown key '{}'{}", place, shown(key), did_you_mean_key(key));
    return setting;
  }

  void accept(const Setting& s, const std::string& place, Value value) {
    if (auto* word = std::get_if<std::string>(&value)) {  // BF16 is bf16
      const auto at = std::find_if(s.words.begin(), s.words.end(),
                                   [&](const std::string& known) { return same_name(known, *word); });
      if (s.kind == SettingKind::word && at != s.words.end()) *word = *at;
    }
    hold(s, place, value);
    given_.emplace_back(&s, std::move(value));
  }

  static void hold(const Setting& s, const std::string& place, const Value& value) {
    if (const auto* number = std::get_if<double>(&value)) {
      if (!std::isfinite(*number)) config_error("{}: {} is {}, must be {}", place, s.key, *number, s.accepted());
    }
    if (s.kind == SettingKind::word || s.kind == SettingKind::list) {
      const auto& word = std::get<std::string>(value);
      if (s.kind == SettingKind::word && !s.takes(word)) {
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
    } else if (std::holds_alternative<std::string>(value)) {
      return;  // a share, held to its bounds where it was read
    } else if (s.kind == SettingKind::boolean) {
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
  void settle_length(size_t& of_file) {
    constexpr std::string_view kSteps = "train.steps", kMinutes = "train.minutes", kEpochs = "train.epochs";
    const auto layer = [&](std::string_view key) {  // 0: not given, 1: in the file, 2: set over it
      int found = 0;
      for (size_t i = 0; i < given_.size(); ++i)
        if (given_[i].first->key == key) found = i < of_file ? 1 : 2;
      return found;
    };
    const std::array<std::pair<std::string_view, int>, 3> measures{
        {{kMinutes, layer(kMinutes)}, {kEpochs, layer(kEpochs)}, {kSteps, layer(kSteps)}}};
    for (size_t i = 0; i < measures.size(); ++i) {
      for (size_t j = i + 1; j < measures.size(); ++j) {
        if (measures[i].second == 0 || measures[i].second != measures[j].second) continue;
        config_error("{}: {} and {} are both given; only one of them can set the run's length",
                     place_of(std::string(measures[i].first)), measures[i].first, measures[j].first);
      }
    }
    const int minutes = measures[0].second, epochs = measures[1].second;
    const int steps = std::max(measures[2].second, epochs);  // counted in steps, either way
    const bool by_clock = minutes > steps, by_epochs = !by_clock && epochs > measures[2].second;
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPairs{
        {{kSteps, kMinutes},
         {"train.warmup_steps", "train.warmup_fraction"},
         {"train.decay_steps", "train.decay_fraction"}}};
    for (const auto& [of_steps, of_clock] : kPairs) {
      if (by_epochs && of_steps == kSteps) continue;
      const std::string other(by_clock ? of_steps : of_clock), own(by_clock ? of_clock : of_steps);
      if (layer(other) > 0 && layer(other) >= std::max(steps, minutes)) {
        config_error("{}: {} is of a run {}, and this one's length is {}; set {}", place_of(other), other,
                     by_clock ? "that is counted in steps" : "by the clock",
                     by_clock    ? kMinutes
                     : by_epochs ? kEpochs
                                 : kSteps,
                     own);
      }
      leave_out(other, of_file);
    }
    for (const auto& [key, found] : measures) {
      if (key == kEpochs ? !by_epochs : key == kMinutes ? !by_clock : by_clock || by_epochs)
        leave_out(key, of_file);
    }
    constexpr std::string_view kEpochSteps = "train.epoch_steps";
    if (const int found = layer(kEpochSteps); found > 0 && epochs == 0)
      config_error("{}: {} follows from train.epochs, which is not given", place_of(std::string(kEpochSteps)),
                   kEpochSteps);
    if (!by_epochs || layer(kEpochSteps) < epochs) leave_out(kEpochSteps, of_file);
    if (by_clock || by_epochs) config_.train.steps = 0;
  }

  void leave_out(std::string_view key, size_t& of_file) {
    const auto is_it = [&](const auto& one) { return one.first->key == key; };
    of_file -=
        static_cast<size_t>(std::count_if(given_.begin(), given_.begin() + static_cast<ptrdiff_t>(of_file), is_it));
    std::erase_if(given_, is_it);
  }

  // If nothing names a model, the released folder that the weights come from does.
  void name_model_by_start() {
    if (!bases_.empty()) return;
    std::string start;
    for (const auto& [setting, value] : given_) {
      if (setting->key.starts_with("model.")) return;
      if (setting->key == "train.start") start = std::get<std::string>(value);
    }
    if (!is_released_folder(start)) return;
    bases_["model.hf"] = start;
    places_["model.hf"] = place_of("train.start");
  }

  // A model named over the file takes the place of the file's: what stands below it does not hold.
  void leave_out_model(size_t of_file, std::vector<std::string>* warnings) {
    std::vector<std::string> left_out;
    for (size_t i = 0; i < of_file; ++i)
      if (given_[i].first->key.starts_with("model.")) left_out.push_back(given_[i].first->key);
    size_t at = 0;
    std::erase_if(given_, [&](const auto& one) { return at++ < of_file && one.first->key.starts_with("model."); });
    for (const std::string& key : left_out) places_.erase(key);
    if (warnings != nullptr && !left_out.empty())
      warnings->push_back(fmt::format("{} takes the place of the whole model of {}, which sets {}", base_over_file_,
                                      file_, fmt::join(left_out, ", ")));
  }

  static std::string_view attention_of(const model::Key* key) {
    using Of = model::Key::Of;
    switch (key == nullptr ? Of::any : key->of) {
      case Of::latent: return "latent";
      case Of::compressed: return "compressed";
      case Of::latent_compressed: return "latent or compressed";
      case Of::latent_grouped: return "latent or grouped";
      case Of::grouped_compressed: return "grouped or compressed";
      default: return "grouped";
    }
  }

  // A key of another kind of attention, of layers that are not there, or of another way of scaling would do
  // nothing.
  void refuse_foreign_keys() const {
    for (const auto& [setting, value] : given_) {
      if (!setting->key.starts_with("model.") || setting->present(config_)) continue;
      if (setting->key.starts_with("model.rope_scaling.")) {
        config_error("{}: {} belongs to another kind than model.rope_scaling.type, which is \"{}\"",
                     place_of(setting->key), setting->key, word_of(config_.model.rope_scaling->type));
      }
      const model::Key* key = model::find_key(setting->key.substr(std::string_view("model.").size()));
      if (key != nullptr && (key->of == model::Key::Of::recurrent || key->of == model::Key::Of::stateful)) {
        config_error("{}: {} belongs to recurrent layers, and model.recurrence is \"{}\"", place_of(setting->key),
                     setting->key, word_of(config_.model.recurrence));
      }
      config_error("{}: {} is of {} attention, and model.attention is \"{}\"", place_of(setting->key), setting->key,
                   attention_of(key), word_of(config_.model.attention));
    }
  }

  PlacedConfig told_;
  RunConfig& config_ = told_.config;
  std::string& file_ = told_.file;
  std::map<std::string, std::string>& places_ = told_.places;
  std::map<std::string, std::string> bases_;  // model.preset or model.hf
  std::string base_over_file_;                // the place of one set over the file
  std::vector<std::pair<const Setting*, Value>> given_;
};

PlacedConfig parsed(std::string_view text, const std::string& place, const std::vector<std::string>& overrides,
                    std::vector<std::string>* warnings) {
  if (text.size() > static_cast<size_t>(kMostConfigBytes)) {
    config_error("{}: larger than {} bytes, no configuration", place, kMostConfigBytes);
  }
  return TomlReader(place).read(text, overrides, warnings);
}

}  // namespace

RunConfig parse_run_config(std::string_view text, const std::string& place,
                           const std::vector<std::string>& overrides, std::vector<std::string>* warnings) {
  return parsed(text, place, overrides, warnings).config;
}

int64_t RunConfig::steps_of_epochs(int64_t train_sequences) const {
  constexpr double kMost = 1e15, kRounding = 1e-9;  // of a product such as 0.1 × 30
  const double sequences = std::min(kMost, train.epochs * static_cast<double>(train_sequences));
  return train.batch_ramp.steps_to(static_cast<int64_t>(std::ceil(sequences * (1 - kRounding))),
                                   train.global_batch);
}

RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          std::vector<std::string>* warnings) {
  return read_placed_config(path, overrides, warnings).config;
}

PlacedConfig read_placed_config(const std::string& path, const std::vector<std::string>& overrides,
                                std::vector<std::string>* warnings) {
  if (path == kStandardInput) {
    return parsed(standard_input(kMostConfigBytes), "standard input", overrides, warnings);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text(static_cast<size_t>(kMostConfigBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return parsed(text, path, overrides, warnings);
}

}  // namespace heddle::config
