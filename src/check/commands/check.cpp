// heddle check: is a step of another trainer, on its ranks, the same function as on one rank?
#include <nlohmann/json.hpp>

#include "check/diagnosis.h"
#include "check/report.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"

namespace heddle::cli {

namespace {

constexpr int kNotEqual = 3;

struct CheckOptions {
  std::string dump, report;
  bool json = false;
};

int check(const CheckOptions& options) {
  check::Dump dump = check::read_dump(options.dump);
  check::order_ranks(dump);
  const check::Diagnosis diagnosis(dump);
  if (!options.report.empty()) {
    OutputFile file(options.report);
    file.write(check::report_page(dump, diagnosis));
    file.commit();
  }
  if (options.json) {
    say("{}\n",
        check::report_json(dump, diagnosis).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    say_text(stdout, check::report_text(dump, diagnosis, observe::describe_terminal(1)));
  }
  return diagnosis.findings().equal() ? kDone : kNotEqual;
}

}  // namespace

void add_check(Commands& all) {
  auto [command, options] = add_command(
      all, "check", "Hold a dumped step of another trainer to Heddle's own on one rank, and name the fault", check);
  command.option("DUMP", options.dump, "The folder that heddle.tap has written").required();
  command.option("--report", options.report, "Write a page to attach to an issue").called("FILE.html");
  add_json(command, options.json);
}

}  // namespace heddle::cli
