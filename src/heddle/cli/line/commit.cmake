# Writes OUT, the source that names the commit of the working copy SOURCE.
find_package(Git QUIET)
set(commit "")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} log -1 "--format=%h of %cs" OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(WRITE ${OUT} "#include \"heddle/cli/line/commit.h\"\n
namespace heddle::cli {
const char* commit_text() { return \"${commit}\"; }
}  // namespace heddle::cli
")
