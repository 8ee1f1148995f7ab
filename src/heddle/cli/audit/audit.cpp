// heddle audit: trains steps of a run again and says whether their weights come out the same.
#include "heddle/session/audit/audit.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/audit/rerun_config.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/on_ranks.h"
#include "heddle/config/step_range.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/session/text/continue_text.h"

namespace heddle::cli {

namespace {

using nlohmann::ordered_json;

struct AuditOptions {
  std::string run;  // folder
  std::string steps;
  std::vector<std::string> set;
  int64_t ranks = 0;  // 0: as in the run
  bool json = false;
};

config::StepRange range_of(const std::string& text) {
  try {
    return config::parse_step_range(text);
  } catch (const ConfigError& error) {
    config_error("--steps {}", error.what());
  }
}

ordered_json json_of(const std::string& run, const session::Audit& audit) {
  ordered_json json{{"run", run},
                    {"from_step", audit.from},
                    {"trusts", audit.trusts.empty() ? ordered_json() : ordered_json(audit.trusts)},
                    {"trusted_by", audit.trusted_by.empty() ? ordered_json() : ordered_json(audit.trusted_by)},
                    {"compared", audit.compared},
                    {"agrees", audit.agrees()},
                    {"steps", ordered_json::array()}};
  for (const session::AuditedStep& step : audit.steps)
    json["steps"].push_back({{"step", step.step},
                             {"recorded", step.recorded.empty() ? ordered_json() : ordered_json(step.recorded)},
                             {"audited", step.audited}});
  json["first_step_that_differs"] = audit.agrees() ? ordered_json() : ordered_json(audit.steps.back().step);
  json["first_op_that_differs"] = audit.first_op.empty() ? ordered_json() : ordered_json(audit.first_op);
  json["notes"] = audit.notes;
  return json;
}

void print(const session::Audit& audit) {
  for (const std::string& note : audit.notes) say(stderr, "heddle: {}\n", session::terminal_text(note));
  if (audit.trusts.empty()) {
    say("trained again from the run's beginning\n\n");
  } else {
    say("trained again from the checkpoint of step {}, which is trusted: {}\n\n", audit.from, audit.trusted_by);
  }
  observe::Table table({{"step", observe::Align::right}, {"the run's weights"}, {"trained again"}, {""}});
  for (const session::AuditedStep& step : audit.steps)
    table.row({fmt::format("{}", step.step), step.recorded.empty() ? "-" : step.recorded, step.audited,
               step.recorded.empty() ? "no digest"
               : step.differs()      ? "differs"
                                     : "the same"});
  say("{}\n", table.text(observe::describe_terminal(1)));
  if (audit.agrees()) {
    say("{} digests compared, all the same\n", audit.compared);
    return;
  }
  say("the weights differ from step {} on\n", audit.steps.back().step);
  if (!audit.first_op.empty()) {
    say("the first op with another result: {}\n", session::terminal_text(audit.first_op));
  } else if (audit.ops_recorded) {
    say("every recorded op has the same result: the weights changed between ops\n");
  } else {
    say("the run did not record its ops, so the op is not known (train.record_ops)\n");
  }
}

int audit(const AuditOptions& options) {
  const config::StepRange range = range_of(options.steps);
  const session::RunFolder folder{options.run};
  session::Audit result;
  const auto tell = [&] {
    if (options.json) {
      say("{}\n", json_of(options.run, result).dump(2, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      print(result);
    }
    return result.agrees() ? kDone : kFailed;
  };
  const auto run = [&](const config::RunConfig& config, comm::World* world) {
    const bool leads = world == nullptr || world->rank() == 0;
    std::optional<observe::Doing> doing;
    if (leads) doing.emplace("training again");
    session::Audit own = session::audit(folder, config, range.first, range.last, world, [&](int64_t step) {
      if (doing) doing->now(fmt::format("step {}", step));
    });
    if (leads) result = std::move(own);
  };
  const auto config_of = [&](int ranks) { return rerun_config(options.run, options.set, ranks); };
  return on_ranks(static_cast<int>(options.ranks), config_of, run, tell);
}

}  // namespace

void add_audit(Commands& all) {
  constexpr int64_t kMostThreadRanks = 256;
  auto [command, options] = add_command(
      all, "audit", "Train steps of a run again and compare the weights; exit status 1 where they differ", audit);
  command.option("RUN", options.run, "The run's folder, such as runs/demo").required();
  command.option("--steps", options.steps, "A step, or the first and the last: 3-9").called("A-B").required();
  command
      .option("--ranks", options.ranks,
              "Ranks as threads of this process; another number than the run's needs train.exact_sums")
      .from(1, kMostThreadRanks);
  add_set(command, options.set);
  add_json(command, options.json);
}

}  // namespace heddle::cli
