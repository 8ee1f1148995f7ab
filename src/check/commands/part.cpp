// heddle part: two implementations of a model beside each other, op by op.
#include "check/part.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

struct PartOptions {
  std::string a, b;
  bool json = false;
};

Json json_of(const check::Parting& parting, const PartOptions& options) {
  Json json{{"a", options.a},
            {"b", options.b},
            {"labels", parting.labels},
            {"gap", parting.gap},
            {"largest_gap", parting.most},
            {"a_to_fp64", parting.to_exact[0]},
            {"b_to_fp64", parting.to_exact[1]}};
  json["ops"] = Json::array();
  for (const check::OpError& op : parting.ops) {
    const auto units = [&](int side) -> Json { return op.tapped[side] ? Json(op.units[side]) : Json(nullptr); };
    json["ops"].push_back(
        {{"name", op.name}, {"a_units", units(0)}, {"b_units", units(1)}, {"own", op.own}, {"share", op.share}});
  }
  return json;
}

int part(const PartOptions& options) {
  check::Dump a = check::read_dump(options.a), b = check::read_dump(options.b);
  const check::Parting parting = check::part(a, b);
  if (options.json) {
    say("{}\n", json_of(parting, options).dump(2, ' ', false, Json::error_handler_t::replace));
    return kDone;
  }
  const auto right = observe::Align::right;
  observe::Table table(
      {{"tensor"}, {"error of A", right}, {"error of B", right}, {"own gap, nats", right}, {"share", right}});
  for (const check::OpError& op : parting.ops) {
    const auto units = [&](int side) {
      return op.tapped[side] ? fmt::format("{:.2f}", op.units[side]) : std::string("-");
    };
    table.row(
        {op.name, units(0), units(1), fmt::format("{:.2e}", op.own), fmt::format("{:+.1f} %", 100 * op.share)});
  }
  say_text(stdout, table.text(observe::describe_terminal(1)));
  say("errors are of the whole value, in units of what its dtype allows; own gap and share are of the op alone\n"
      "log-probabilities of {} labels: A and B are {:.3e} nats apart on average, {:.3e} at most; from fp64, A is "
      "{:.3e} and B {:.3e}\n",
      parting.labels, parting.gap, parting.most, parting.to_exact[0], parting.to_exact[1]);
  return kDone;
}

}  // namespace

void add_part(Commands& all) {
  auto [command, options] = add_command(
      all, "part", "Hold two implementations of a model to fp64, and share out the gap between them", part);
  command.option("A", options.a, "The dump of one").required();
  command.option("B", options.b, "The dump of the other, of the same weights and tokens").required();
  add_json(command, options.json);
}

}  // namespace heddle::cli
