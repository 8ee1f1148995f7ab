#include "advisor/answer/typed_words.h"

#include <algorithm>
#include <map>

#include "advisor/advice/targets.h"
#include "advisor/script/emit.h"
#include "advisor/script/launch_flags.h"
#include "heddle/base/text.h"
#include "heddle/planner/launch_settings.h"

namespace heddle::advisor {

namespace {

Dialect dialect_of_trainer(std::string_view target) {
  return target == "mindspeed" ? Dialect::mindspeed : Dialect::megatron;
}

std::string flag_text(const Flag& flag) {
  std::string text = flag.name;
  for (const std::string& value : flag.values) text += " " + shell_quoted(value);
  return text;
}

// A key of the plan rather than of the model or the run's name.
bool is_of_plan(const std::string& setting) {
  return !setting.starts_with("model.") && !setting.starts_with("name=");
}

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

WordChanges setting_changes(const Launch& from, const Launch& to) {
  const auto by_key = [](const Launch& launch) {
    std::map<std::string, std::string> settings;
    for (const std::string& s : planner::settings_of(launch)) settings[key_of(s)] = s;
    return settings;
  };
  const std::map<std::string, std::string> before = by_key(from), after = by_key(to);
  WordChanges changes;
  for (const auto& [key, setting] : after)
    if (const auto was = before.find(key); was == before.end() || was->second != setting)
      changes.add.push_back(setting);
  for (const auto& [key, setting] : before)
    if (!after.contains(key)) changes.remove.push_back(key);
  return changes;
}

}  // namespace

TypedWords typed_words(const Launch& launch, std::string_view target) {
  TypedWords typed{std::string(target), {}, {}};
  if (const std::vector<std::string> refusals = refusals_of(launch, target); !refusals.empty()) {
    typed.refusal = refusals.front();
    return typed;
  }
  if (target == "heddle") {
    for (std::string& setting : planner::settings_of(launch))
      if (is_of_plan(setting)) typed.words.push_back(std::move(setting));
    return typed;
  }
  for (const Flag& flag : flags_of(launch, dialect_of_trainer(target)))
    if (is_one_of(flag.group, {"parallel", "memory", "training"})) typed.words.push_back(flag_text(flag));
  return typed;
}

WordChanges word_changes(const Launch& from, const Launch& to, std::string_view target,
                         const LaunchScript* script) {
  if (target == "heddle") return setting_changes(from, to);
  const Dialect dialect = dialect_of_trainer(target);
  std::map<std::string, std::vector<std::string>> given;
  if (script != nullptr) {
    given = script->flags;
  } else {
    for (const Flag& flag : flags_of(from, dialect)) given[flag.name] = flag.values;
  }
  const FlagChanges flags = flag_changes(from, to, dialect, given);
  WordChanges changes;
  for (const Flag& flag : flags.added) {  // rows of several flags have those that stay too
    const auto same = given.find(flag.name);
    if (same == given.end() || same->second != flag.values) changes.add.push_back(flag_text(flag));
  }
  for (const std::string& name : flags.removed)  // one that stays or has another value is not
    if (std::none_of(flags.added.begin(), flags.added.end(), [&](const Flag& f) { return f.name == name; }))
      changes.remove.push_back(name);
  return changes;
}

}  // namespace heddle::advisor
