// heddle report: runs beside each other, while they train or afterwards.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/runs/run_comparison.h"
#include "heddle/session/run_folder.h"

namespace heddle::cli {

namespace {

struct ReportOptions {
  std::vector<std::string> runs;  // folders
  std::string html;               // file
  bool json = false;
};

// The shortest ends of the paths that differ.
std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> whole;
  for (const std::string& path : paths) {
    std::filesystem::path plain = std::filesystem::path(path).lexically_normal();
    if (!plain.has_filename()) plain = plain.parent_path();
    whole.push_back(plain == "." ? std::filesystem::absolute(path).lexically_normal() : plain);
  }
  for (size_t parts = 1;; ++parts) {
    std::vector<std::string> names;
    bool all = true;
    for (const std::filesystem::path& path : whole) {
      std::filesystem::path name, rest = path;
      for (size_t i = 0; i < parts && rest.has_filename(); ++i, rest = rest.parent_path())
        name = name.empty() ? rest.filename() : rest.filename() / name;
      all = all && name == path;
      names.push_back(name.string());
    }
    if (all || std::set(names.begin(), names.end()).size() == names.size()) return names;
  }
}

observe::ComparedRun run_of(const std::string& folder, std::string name) {
  const session::RunFolder files{folder};
  session::check_is_run(files);
  observe::ComparedRun run;
  run.name = std::move(name);
  if (std::filesystem::exists(files.metrics())) {
    observe::MetricsHistory history = observe::read_metrics(files.metrics(), observe::BrokenLines::skip);
    run.steps = std::move(history.steps);
    for (const std::string& warning : history.warnings) say(stderr, "warning: {}\n", escaped_lines(warning));
  }
  run.figures = observe::figures_of(run.steps);
  run.settings = config::setting_texts(config::read_run_config(files.config()));
  return run;
}

nlohmann::ordered_json json_of(const std::vector<std::string>& folders,
                               const std::vector<observe::ComparedRun>& runs) {
  using Json = nlohmann::ordered_json;
  Json json{{"runs", Json::array()}, {"settings", Json::object()}};
  for (size_t r = 0; r < runs.size(); ++r) {
    Json run{{"folder", folders[r]}, {"name", runs[r].name}};
    run.update(Json::parse(observe::json_of(runs[r].figures)));
    json["runs"].push_back(std::move(run));
  }
  for (const observe::DifferingSetting& setting : observe::differing_settings(runs))
    json["settings"][setting.key] = setting.of_runs;
  return json;
}

int report(const ReportOptions& options) {
  if (options.runs.size() > observe::kMostComparedRuns)
    config_error("{} runs: at most {} go on one page", options.runs.size(), observe::kMostComparedRuns);
  const std::vector<std::string> names = names_of(options.runs);
  std::vector<observe::ComparedRun> runs;
  for (size_t r = 0; r < names.size(); ++r) runs.push_back(run_of(options.runs[r], names[r]));
  if (!options.html.empty()) write_file(options.html, observe::comparison_html(runs));
  if (options.json) {
    say("{}\n", json_of(options.runs, runs).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return kDone;
  }
  const observe::Terminal terminal = observe::describe_terminal(1);
  say("{}", observe::figures_table(runs).text(terminal));
  if (!observe::differing_settings(runs).empty()) say("\n{}", observe::settings_table(runs).text(terminal));
  if (!options.html.empty()) say("\npage: {}\n", options.html);
  return kDone;
}

}  // namespace

void add_report(Commands& all) {
  auto [command, options] =
      add_command(all, "report", "Compare runs: figures, settings that differ, curves on one page", report);
  command.option("RUN", options.runs, "Folders of runs, at most 11").required();
  command.option("--html", options.html, "Write the page to this file").called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
