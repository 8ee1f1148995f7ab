// heddle explain: the tables of settings and switches, as text.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/say.h"
#include "heddle/base/text.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/config/families/family.h"
#include "heddle/config/run_config.h"
#include "heddle/config/setting_names.h"
#include "heddle/observe/figures.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

namespace {

struct ExplainOptions {
  std::string key;  // empty: all keys
  bool figures = false;
  bool json = false;
};

using Json = nlohmann::ordered_json;
using config::Setting;

// The two keys that name a whole model are no members of the configuration.
struct Entry {
  std::string key, accepted, standard, meaning;
  std::vector<std::string> synonyms;
  const plan::Switch* known = nullptr;  // the switch, where it is one
};

std::vector<Entry> entries() {
  const config::RunConfig defaults;
  std::vector<Entry> all;
  all.push_back({"model.preset",
                 fmt::format("{}", fmt::join(config::preset_names(), ", ")),
                 "none",
                 "A model by name; the other keys of [model] are set on top of it. On the command line it replaces "
                 "the whole section.",
                 {}});
  std::vector<std::string> types;
  for (const config::Family& family : config::families()) types.push_back(family.model_type);
  all.push_back({"model.hf",
                 "a path",
                 "none",
                 fmt::format("A Hugging Face config.json of {}; the other keys of [model] are set on top of it.",
                             fmt::join(types, ", ")),
                 {}});
  for (const Setting& s : config::settings()) {
    const bool present = !s.present || s.present(defaults);
    all.push_back({s.key, s.accepted(), present ? s.text_of(s.get(defaults)) : s.unset, s.meaning, s.synonyms,
                   s.as_switch ? &*s.as_switch : nullptr});
  }
  return all;
}

Json json_of(const Entry& e) {
  Json json{{"key", e.key}, {"accepted", e.accepted}, {"default", e.standard}, {"meaning", e.meaning}};
  if (!e.synonyms.empty()) json["also_called"] = e.synonyms;
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
  const int columns = observe::describe_terminal(1).columns;
  const auto line = [&](std::string_view what, const std::string& text) {
    constexpr int kIndent = 11;
    std::string before = fmt::format("  {:<9}", what);
    for (const std::string& part : observe::wrapped(text, columns > 0 ? columns - kIndent : INT_MAX)) {
      say("{}{}\n", before, part);
      before.assign(kIndent, ' ');
    }
  };
  say("{}\n", e.key);
  line("accepts", e.accepted);
  line("default", e.standard);
  line("meaning", e.meaning);
  if (!e.synonyms.empty()) line("also", fmt::format("{}", fmt::join(e.synonyms, ", ")));
  if (e.known == nullptr) return;
  if (e.known->effect != e.meaning) line("effect", e.known->effect);
  line("maths", fmt::format("{}: {}{}{}", plan::name_of(e.known->maths), plan::promise_of(e.known->maths),
                            e.known->unless.empty() ? "" : "; ", e.known->unless));
  line("cost", e.known->cost);
  line("page", e.known->page);
}

// A key, a section, or what others call a key: one that is called so, or all of them.
std::vector<Entry> entries_for(const std::string& word) {
  const std::vector<Entry> all = entries();
  std::vector<Entry> found;
  for (const Entry& e : all) {
    if (e.key == word) return {e};
    if (word.empty() || e.key.starts_with(word + ".")) found.push_back(e);
  }
  if (!found.empty()) return found;
  const std::vector<std::string> keys = config::keys_called(word);
  std::copy_if(all.begin(), all.end(), std::back_inserter(found), [&](const Entry& e) {
    return std::find(keys.begin(), keys.end(), e.key) != keys.end() ||
           (same_name(e.key, word) || e.key.ends_with("." + word));
  });
  if (!found.empty()) return found;
  const std::string near = config::did_you_mean_key(word);
  config_error("explain: unknown key '{}'{}", shown(word), near.empty() ? " (`heddle explain` lists all)" : near);
}

// Returns the place of a figure in the run's JSON; "": none.
std::string place_in_run(const observe::Figure& row) {
  return row.group == nullptr || row.in_run.empty() ? std::string(row.in_run)
                                                    : fmt::format("{}.{}", row.group->key, row.in_run);
}

Json json_of(const observe::Figure& row) {
  Json json{{"key", row.key}, {"unit", word_of(row.unit)}, {"meaning", row.meaning}};
  if (!row.each.empty()) json["each"] = row.each;
  if (!row.list.empty()) json["list"] = row.list;
  if (row.over_steps != observe::OverSteps::none) json["over_steps"] = word_of(row.over_steps);
  if (!row.in_run.empty()) json["in_run"] = place_in_run(row);
  if (!row.was.empty()) json["was"] = row.was;
  return json;
}

int explain_figures(const ExplainOptions& options) {
  if (options.json) {
    Json json = Json::array();
    for (const observe::Figure* row : observe::figures::kRows) json.push_back(json_of(*row));
    say("{}\n", json.dump(2));
    return kDone;
  }
  observe::Table table({{"figure"}, {"unit"}, {"of the run"}, {"meaning"}});
  for (const observe::Figure* row : observe::figures::kRows)
    table.row({std::string(row->key), std::string(word_of(row->unit)), std::string(word_of(row->over_steps)),
               std::string(row->meaning)});
  say("{}", table.text(observe::describe_terminal(1)));
  return kDone;
}

int explain(const ExplainOptions& options) {
  if (options.figures) return explain_figures(options);
  const std::vector<Entry> found = entries_for(options.key);
  if (options.json) {
    Json json = Json::array();
    for (const Entry& e : found) json.push_back(json_of(e));
    say("{}\n", (found.size() == 1 ? json[0] : json).dump(2));
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
  say("{}", table.text(observe::describe_terminal(1)));
  return kDone;
}

}  // namespace

void add_explain(Commands& all) {
  auto [command, options] =
      add_command(all, "explain", "What a configuration key does; without KEY, all of them", explain);
  command.option("KEY", options.key, "A key such as train.clip_norm, its name elsewhere (lr, top_k), or a section");
  command.option("--figures", options.figures, "The figures that a step and a run report, in place of keys")
      .excludes("KEY");
  add_json(command, options.json);
}

}  // namespace heddle::cli
