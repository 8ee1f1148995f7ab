// The commit that this program was built from. The definition is written by the build (commit.cmake), anew whenever
// the working copy's HEAD moves.
#pragma once

namespace heddle::cli {

/// "1234abc of 2026-01-31"; "" of what was not built in a working copy of git.
const char* commit_text();

}  // namespace heddle::cli
