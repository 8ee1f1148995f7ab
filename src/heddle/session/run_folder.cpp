#include "heddle/session/run_folder.h"

#include <unistd.h>

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/model_json.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

bool holds_run(const std::string& path) {
  std::error_code ignored;
  return fs::exists(held_path(RunFolder{path}.config()), ignored);
}

std::string numbered(const config::RunConfig& config, int number) {
  return number == 1 ? config.folder() : fmt::format("{}-{}", config.folder(), number);
}

// "": it was there.
NewFolder make(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) throw SystemError(error.value(), fmt::format("cannot make the folder {}: {}", path, error.message()));
  if (made) flush_folder(fs::absolute(path).lexically_normal().parent_path().string());
  return made ? NewFolder(path) : NewFolder();
}

// The supervisor of a job holds the folder for all its generations: a rank of an old one, which nobody can reach
// any more, would hold it for ever.
std::optional<FolderLock> lock_of(const std::string& path, std::string& holder) {
  std::error_code ignored;
  if (own_fence() && fs::equivalent(own_fence()->folder, path, ignored)) {
    check_fence(path);
    return FolderLock::held_for_us(path);
  }
  return FolderLock::take(path, holder);
}

[[noreturn]] void in_use(const std::string& path, const std::string& holder) {
  config_error("{} is in use: {} writes there; --set output=FOLDER takes another", path, holder);
}

HeldFolder held(const std::string& path, FolderLock lock, NewFolder made = {}) {
  const RunFolder folder{path};
  for (const std::string& inner :
       {folder.checkpoints(), folder.tensorboard(), folder.metrics(), folder.ranks(), folder.ops()}) {
    std::error_code ignored;
    if (!fs::is_symlink(held_path(inner), ignored)) continue;
    config_error("{} is a symbolic link, and a run writes only below its own folder; the folder itself may be one",
                 inner);
  }
  remove_temporaries(path);
  remove_temporaries(folder.checkpoints());
  std::error_code ignored;
  if (!own_fence())
    fs::remove_all(held_path(folder.ranks()), ignored);  // pages of a run that died; a supervisor clears its own
  HeldFolder found{folder, std::move(lock), std::move(made), {}};
  if (!found.lock.locked()) {
    found.warnings.push_back(
        fmt::format("{}: the file system has no locks; nothing keeps another run from writing there", path));
  }
  return found;
}

}  // namespace

std::string RunFolder::tokenizer() const { return data::tokenizer_in(path); }

void check_is_run(const RunFolder& folder) {
  std::error_code ignored;
  if (fs::exists(folder.config(), ignored)) return;
  const std::string& path = folder.path;
  if (config::is_released_folder(path))
    config_error("{}: a released model, and no run: `heddle convert {} --to RUN` makes a run of it", path, path);
  config_error("{}: no run folder (it has no config.toml)", path);
}

NewFolder::~NewFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  for (fs::directory_iterator at(path_, ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (at->path().filename() != ".lock") return;
  }
  ::unlink((path_ + "/.lock").c_str());
  ::rmdir(path_.c_str());
}

HeldFolder new_run_folder(const config::RunConfig& config) {
  for (int number = 1;; ++number) {
    const std::string path = numbered(config, number);
    const bool named = !config.output.empty();
    if (!named && holds_run(path)) continue;
    NewFolder made = make(path);
    std::string holder;
    std::optional<FolderLock> lock = lock_of(path, holder);
    if (!lock) made.keep();  // it is the other's now
    if (!lock && named) in_use(path, holder);
    if (!lock) continue;
    if (!holds_run(path))
      return held(path, std::move(*lock), std::move(made));  // asked again: it may have come since
    if (named) {
      config_error("{} holds a run already: --resume goes on with it, --set output=FOLDER begins another", path);
    }
  }
}

std::string path_of_existing_run(const config::RunConfig& config) {
  std::string path = config.folder();
  if (config.output.empty()) {
    for (int number = 2; holds_run(numbered(config, number)); ++number) path = numbered(config, number);
  }
  return holds_run(path) ? path : "";
}

HeldFolder existing_run_folder(const config::RunConfig& config) {
  const std::string path = path_of_existing_run(config);
  if (path.empty()) config_error("--resume: no run in {}", config.folder());
  std::string holder;
  std::optional<FolderLock> lock = lock_of(path, holder);
  if (!lock) in_use(path, holder);
  return held(path, std::move(*lock));
}

}  // namespace heddle::session
