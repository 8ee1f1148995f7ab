#include "advisor/answer/script_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>

#include "advisor/answer/cluster_file.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"

namespace heddle::advisor {

namespace {

constexpr int64_t kMostScriptBytes = int64_t{1} << 20;

// A file beside the script, where it is one; of others a script that is read gets nothing.
std::optional<std::string> sourced(const std::string& script, const std::string& path) {
  constexpr int kFolders = 4;  // the script's, and those around it
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(script, error).parent_path();
  for (int i = 0; i < kFolders; ++i, folder = folder.parent_path()) {
    const std::filesystem::path file = folder / path;
    std::error_code absent;
    if (std::filesystem::is_regular_file(file, absent)) return read_file(file.string(), kMostScriptBytes);
  }
  return std::nullopt;
}

ScriptContext context_of(const ScriptRequest& request) {
  ScriptContext context;
  context.devices = static_cast<int>(request.devices);
  context.imbalance = request.imbalance;
  if (!request.cluster.empty()) context.device = read_cluster(request.cluster);
  for (const std::string& each : request.set) {
    const size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0)
      config_error("--set {}: accepted: NAME=VALUE", each.substr(0, 60));
    const std::string value = each.substr(equals + 1);
    if (value.find('\0') != std::string::npos) config_error("--set {}: holds a zero byte", each.substr(0, equals));
    context.variables[each.substr(0, equals)] = value;
  }
  if (request.path != kStandardInput)
    context.file = [script = request.path](const std::string& path) { return sourced(script, path); };
  return context;
}

}  // namespace

std::vector<std::string> ScriptJob::unread() const {
  std::vector<std::string> lines;
  const auto flags = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) lines.push_back(fmt::format("{}: {}", what, fmt::join(names, " ")));
  };
  flags("may change the model, and are not known here", script.others.unknown);
  flags("change the model, and are not described: the figures are of a model without them", script.others.sizes);
  flags("change time or memory, and are not estimated", script.others.pace);
  return lines;
}

ScriptJob read_script_job(const ScriptRequest& request) {
  ScriptJob job;
  job.path = request.path;
  job.text =
      request.path == kStandardInput ? standard_input(kMostScriptBytes) : read_file(request.path, kMostScriptBytes);
  job.context = context_of(request);
  job.script = read_launch_script(job.text, job.path, job.context);
  return job;
}

}  // namespace heddle::advisor
