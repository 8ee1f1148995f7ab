#include "advisor/answer/subject.h"

#include <filesystem>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/files/standard_input.h"

namespace heddle::advisor {

namespace {

namespace fs = std::filesystem;

// The name reads as a file's: a script or a configuration that people write.
bool is_file_name(const std::string& text) {
  static constexpr const char* kEndings[] = {".sh", ".bash", ".slurm", ".sbatch", ".toml"};
  for (const char* ending : kEndings)
    if (text.ends_with(ending)) return true;
  return text.starts_with("./") || text.starts_with("../") || text.starts_with("/") || text.starts_with("~");
}

[[noreturn]] void refuse_missing(const std::string& text) {
  constexpr size_t kMostNames = 1000;
  std::error_code error;
  const fs::path path(text), folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && names.size() < kMostNames;
       it.increment(error))
    names.push_back(it->path().filename().string());
  config_error("plan: no file '{}'{}", text.substr(0, 200), did_you_mean(path.filename().string(), names));
}

}  // namespace

Subject subject_of(const std::string& text) {
  if (text == kStandardInput) return {PlanKind::script, text};
  std::error_code error;
  const fs::path path(text);
  if (fs::is_directory(path, error)) {
    if (fs::exists(path / "config.json", error)) return {PlanKind::model, text};
    if (fs::exists(path / "config.toml", error)) return {PlanKind::config, (path / "config.toml").string()};
    config_error("plan: the folder '{}' has neither config.json (a model) nor config.toml (a run)",
                 text.substr(0, 200));
  }
  if (fs::exists(path, error)) {
    if (path.extension() == ".toml") return {PlanKind::config, text};
    if (path.filename() == "config.json")
      return {PlanKind::model, path.has_parent_path() ? path.parent_path().string() : "."};
    if (path.extension() == ".json")
      config_error("plan: '{}' is no subject, accepted: a model's folder or the config.json in it",
                   text.substr(0, 200));
    return {PlanKind::script, text};
  }
  if (is_file_name(text)) refuse_missing(text);
  return {PlanKind::model, text};
}

}  // namespace heddle::advisor
