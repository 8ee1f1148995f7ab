// heddle version: which build this is.
#include "heddle/base/say.h"
#include "heddle/cli/commands.h"
#include "heddle_commit.h"

namespace heddle::cli {

namespace {

struct VersionOptions {};

// "heddle 0.1.0 (commit 1234abc of 2026-01-31; Release, GCC 12.2.0)"
std::string version_text() {
#if defined(__clang__)
  const std::string compiler = fmt::format("Clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("GCC {}", __VERSION__);
#endif
  const std::string commit = HEDDLE_COMMIT;
  return fmt::format("heddle {} ({}{}{}, {})", HEDDLE_VERSION, commit.empty() ? "" : "commit " + commit + "; ",
                     HEDDLE_BUILD, std::string_view(HEDDLE_SANITIZE).empty() ? "" : ", sanitizers " HEDDLE_SANITIZE,
                     compiler);
}

int version(const VersionOptions& /*options*/) {
  say("{}\n", version_text());
  return kDone;
}

}  // namespace

void add_version(Commands& all) { add_command(all, "version", "Which build this is, as --version", version); }

}  // namespace heddle::cli
