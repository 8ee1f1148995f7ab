// heddle explain: the tables of settings and switches, as text.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

namespace {

struct ExplainOptions {
  std::string key;  // empty: all keys
  bool json = false;
};

using Json = nlohmann::ordered_json;
using config::Setting;

// The two keys that name a whole model are no members of the configuration.
struct Entry {
  std::string key, accepted, standard, meaning;
  const plan::Switch* known = nullptr;  // where it is one
};

std::vector<Entry> entries() {
  const config::RunConfig defaults;
  std::vector<Entry> all;
  all.push_back({"model.preset", fmt::format("{}", fmt::join(config::preset_names(), ", ")), "none",
                 "A model by name; the other keys of [model] are set on top of it."});
  all.push_back({"model.hf", "a path", "none",
                 "A Hugging Face config.json of DeepSeek-V2 or V3, Qwen3 or Qwen3-MoE; the other keys of [model] "
                 "are set on top of it."});
  for (const Setting& s : config::settings()) {
    const bool present = !s.present || s.present(defaults);
    all.push_back({s.key, s.accepted(), present ? s.text_of(s.get(defaults)) : s.unset, s.meaning,
                   s.as_switch ? &*s.as_switch : nullptr});
  }
  return all;
}

Json json_of(const Entry& e) {
  Json json{{"key", e.key}, {"accepted", e.accepted}, {"default", e.standard}, {"meaning", e.meaning}};
  if (e.known != nullptr) {
    json["switch"] = {{"maths_class", plan::name_of(e.known->maths)},
                      {"effect", e.known->effect},
                      {"cost", e.known->cost},
                      {"page", e.known->page}};
    if (!e.known->unless.empty()) json["switch"]["unless"] = e.known->unless;
  }
  return json;
}

void print(const Entry& e) {
  fmt::print("{}\n", e.key);
  fmt::print("  accepts  {}\n", e.accepted);
  fmt::print("  default  {}\n", e.standard);
  fmt::print("  meaning  {}\n", e.meaning);
  if (e.known == nullptr) return;
  if (e.known->effect != e.meaning) fmt::print("  effect   {}\n", e.known->effect);
  fmt::print("  maths    {}: {}{}{}\n", plan::name_of(e.known->maths), plan::promise_of(e.known->maths),
             e.known->unless.empty() ? "" : "; ", e.known->unless);
  fmt::print("  cost     {}\n", e.known->cost);
  fmt::print("  page     {}\n", e.known->page);
}

int explain(const ExplainOptions& options) {
  std::vector<Entry> found;
  std::vector<std::string> names;
  const std::vector<Entry> all = entries();
  for (const Entry& e : all) {
    const bool in_section = e.key.starts_with(options.key + ".");
    if (e.key == options.key) found = {e};
    if (options.key.empty() || in_section) found.push_back(e);
    names.push_back(e.key);
  }
  if (found.empty()) {  // a key without its section, if that is no ambiguity
    for (const Entry& e : all) {
      if (e.key.ends_with("." + options.key)) found.push_back(e);
    }
  }
  if (found.empty()) {
    std::string near = nearest_name(options.key, names);
    if (near.empty()) {
      std::vector<std::string> leaves;
      for (const std::string& name : names) leaves.push_back(name.substr(name.rfind('.') + 1));
      const std::string leaf = nearest_name(options.key.substr(options.key.rfind('.') + 1), leaves);
      for (size_t i = 0; i < leaves.size() && near.empty() && !leaf.empty(); ++i) {
        if (leaves[i] == leaf) near = names[i];
      }
    }
    config_error("explain: unknown key '{}'{}", options.key.substr(0, 60),
                 near.empty() ? " (`heddle explain` lists all)" : fmt::format(", did you mean '{}'?", near));
  }
  if (options.json) {
    Json json = Json::array();
    for (const Entry& e : found) json.push_back(json_of(e));
    fmt::print("{}\n", (found.size() == 1 ? json[0] : json).dump(2));
    return kDone;
  }
  if (found.size() == 1) {
    print(found[0]);
    return kDone;
  }
  observe::Table table({{"key"}, {"default"}, {"maths"}, {"meaning"}});
  for (const Entry& e : found) {
    table.row({e.key, e.standard, e.known == nullptr ? "" : std::string(plan::name_of(e.known->maths)), e.meaning});
  }
  fmt::print("{}", table.text(observe::describe_terminal(1).unicode));
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app) {
  auto [command, options] =
      add_command(app, "explain", "What a configuration key does; without KEY, all of them", explain);
  command.add_option("KEY", options.key, "A key such as train.clip_norm, or a section");
  add_json(command, options.json);
}

}  // namespace heddle::cli
