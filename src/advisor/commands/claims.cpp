// heddle claims: the book of claims, each row beside what is computed and what was measured.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "advisor/claims/claim.h"
#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"

namespace heddle::cli {

namespace {

using advisor::Claim;
using advisor::ClaimUnit;
using Json = nlohmann::ordered_json;

struct ClaimsOptions {
  std::string name;  // empty: all
  bool json = false;
};

std::string figure(ClaimUnit unit, double value) {
  switch (unit) {
    case ClaimUnit::gain: return fmt::format("{:+.1f} %", 100 * value);
    case ClaimUnit::share: return fmt::format("{:.1f} %", 100 * value);
    case ClaimUnit::times: return fmt::format("{:.2f} times", value);
    case ClaimUnit::count: return fmt::format("{:.0f}", value);
    case ClaimUnit::seconds: return value < 1 ? fmt::format("{:.3f} s", value) : fmt::format("{:.0f} s", value);
  }
  return "";
}
std::string figure(ClaimUnit unit, const advisor::Range& range) {
  const std::string low = figure(unit, range.low), high = figure(unit, range.high);
  return low == high ? low : low.substr(0, low.find(' ')) + " to " + high;
}

Json json_of(const Claim& c, const std::optional<double>& computed) {
  Json row{{"claim", c.name},
           {"system", c.system},
           {"what", c.what},
           {"setting", c.setting},
           {"source", c.source},
           {"unit", word_of(c.unit)},
           {"better", word_of(c.better)},
           {"published_low", c.published.low},
           {"published_high", c.published.high},
           {"published", figure(c.unit, c.published)},
           {"ours", nullptr},
           {"by", c.by}};
  if (computed) {
    row["ours"] = *computed;
    row["computed"] = figure(c.unit, *computed);
  }
  if (c.measured) {
    row["measured"] = {
        {"low", c.measured->low},         {"high", c.measured->high},       {"figure", figure(c.unit, *c.measured)},
        {"setting", c.measured->setting}, {"command", c.measured->command}, {"page", c.measured->page},
        {"date", c.measured->date}};
  }
  row["verdict"] = word_of(advisor::verdict_of(c, computed));
  row["reason"] = c.reason;
  return row;
}

int print_claims(const ClaimsOptions& o) {
  std::vector<std::string> names;
  for (const Claim& c : advisor::claims()) names.push_back(c.name);
  if (!o.name.empty() && std::find(names.begin(), names.end(), o.name) == names.end())
    config_error("claims: '{}' is not known, accepted: {}{}", o.name.substr(0, 60), fmt::join(names, ", "),
                 did_you_mean(o.name, names));
  observe::Table table({{"claim"},
                        {"published", observe::Align::right},
                        {"computed", observe::Align::right},
                        {"measured", observe::Align::right},
                        {"verdict"},
                        {"of what"}});
  Json all = Json::array();
  auto doing = std::make_unique<observe::Doing>("computing");
  for (const Claim& c : advisor::claims()) {
    if (!o.name.empty() && c.name != o.name) continue;
    doing->now("computing " + c.name);
    const std::optional<double> computed = advisor::compute(c);
    table.row({c.name, figure(c.unit, c.published), computed ? figure(c.unit, *computed) : "",
               c.measured ? figure(c.unit, *c.measured) : "",
               std::string(word_of(advisor::verdict_of(c, computed))), c.what});
    all.push_back(json_of(c, computed));
  }
  doing.reset();  // the table has the terminal to itself
  std::string text = o.json ? all.dump(2) + "\n" : table.text(observe::describe_terminal(1));
  if (!o.json && !o.name.empty()) {
    const Json& row = all[0];
    observe::Table more({{""}, {""}});
    const auto line = [&](const char* title, const Json& value) {
      if (!value.get<std::string>().empty()) more.row({title, value.get<std::string>()});
    };
    line("setting", row["setting"]);
    line("source", row["source"]);
    line("computed by", row["by"]);
    if (row.contains("measured")) {
      line("measured", row["measured"]["setting"]);
      line("again by", row["measured"]["command"]);
      line("page, date",
           row["measured"]["page"].get<std::string>() + ", " + row["measured"]["date"].get<std::string>());
    }
    line("reason", row["reason"]);
    text += more.text(observe::describe_terminal(1));
  }
  say("{}", text);
  return kDone;
}

}  // namespace

void add_claims(Commands& all) {
  auto [command, options] =
      add_command(all, "claims", "Published claims beside what is computed and was measured here", print_claims);
  command.option("NAME", options.name, "One claim, such as merging; without it, all");
  add_json(command, options.json);
}

}  // namespace heddle::cli
