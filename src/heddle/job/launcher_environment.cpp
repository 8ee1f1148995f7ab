#include "heddle/job/launcher_environment.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/hash.h"

namespace heddle::job {

namespace {

namespace fs = std::filesystem;

constexpr double kDying_s = 2;  // in which daemons notice that their launcher is dead
constexpr double kBetween_s = 0.05;

// The folder of what Open MPI's processes share: one of two, for a generation and for the standby behind it. They
// are named after the run, so that a supervisor after one that was killed finds what that one has left. Daemons of
// that one may be about to die and write there yet. "" where it can't be made, or is somebody else's.
std::string session_folder(const std::string& run, int64_t generation) {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error) /
                        fmt::format("heddle-launch-{}-{:016x}-{}", ::getuid(), hash_bytes(run), generation % 2);
  if (error) return "";
  for (const double until_s = now_s() + kDying_s;;) {
    fs::remove_all(path, error);
    if (::mkdir(path.c_str(), 0700) == 0) return path.string();
    if (errno != EEXIST || now_s() > until_s) return "";
    std::this_thread::sleep_for(std::chrono::duration<double>(kBetween_s));
  }
}

}  // namespace

Environment launcher_environment(const std::string& run, int64_t generation) {
  Environment environment;
  if (std::getenv("OMPI_MCA_shmem") == nullptr) environment.emplace_back("OMPI_MCA_shmem", "mmap");
  if (const std::string folder = session_folder(run, generation); !folder.empty())
    environment.emplace_back("OMPI_MCA_orte_tmpdir_base", folder);
  return environment;
}

void remove_session_folders(const std::string& run) {
  std::error_code ignored;
  for (const int64_t generation : {0, 1}) {
    if (const std::string folder = session_folder(run, generation); !folder.empty()) fs::remove(folder, ignored);
  }
}

}  // namespace heddle::job
