#include "heddle/cli/run_folder.h"

#include <filesystem>

#include "heddle/base/error.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;

bool holds_run(const std::string& path) {
  std::error_code ignored;
  return fs::exists(RunFolder{path}.config(), ignored);
}

std::string numbered(const train::RunConfig& config, int number) {
  return number == 1 ? config.folder() : fmt::format("{}-{}", config.folder(), number);
}

}  // namespace

RunFolder new_run_folder(const train::RunConfig& config) {
  std::string path = config.folder();
  if (config.output.empty()) {
    for (int number = 1; holds_run(path); ++number) path = numbered(config, number);
  } else if (holds_run(path)) {
    config_error("{} holds a run already: --resume goes on with it, --set output=FOLDER begins another", path);
  }
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw SystemError(error.value(), fmt::format("cannot make the folder {}: {}", path, error.message()));
  return {path};
}

RunFolder existing_run_folder(const train::RunConfig& config) {
  std::string path = config.folder();
  if (config.output.empty()) {
    for (int number = 2; holds_run(numbered(config, number)); ++number) path = numbered(config, number);
  }
  if (!holds_run(path)) config_error("--resume: no run in {}", path);
  return {path};
}

}  // namespace heddle::cli
