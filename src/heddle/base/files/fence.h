// The generation of a job that this process belongs to. No older one commits a file any more.
//
// A supervisor that starts a job's ranks again can't know that every rank of before is dead. One may hang in a call
// into a file system, or on a host that is cut off. So each generation has a number and a token. FOLDER/.generation
// names the one that may write. A file appears at its place (OutputFile::commit) only while it names ours. A commit
// that was checked before the number changed and comes after it finds its temporary file gone: the new generation
// removes those before it reads anything.
//
// HEDDLE_JOB in the environment says which generation it is: "NUMBER:TOKEN:FOLDER". Without it nothing is fenced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

struct Fence {
  int64_t number = 0;
  std::string token;  // as random_id makes them
  std::string folder;
};

inline constexpr const char* kFenceVariable = "HEDDLE_JOB";

/// Parses the variable. ConfigError where it says nothing that a supervisor would.
Fence parse_fence(std::string_view text);
std::string text_of(const Fence& fence);

/// The generation that FOLDER/.generation names; none where there is no such file.
std::optional<Fence> open_fence(const std::string& folder);
/// Lets only this generation commit from now on. The caller holds the folder.
void raise_fence(const Fence& fence);

/// The generation of this process, as its environment says it; none: it is nobody's.
const std::optional<Fence>& own_fence();
/// SystemError where another generation than this process's may write; `path` is what it was about to write.
void check_fence(std::string_view path);
/// Waits while FOLDER/.generation names an earlier generation than this process's: it was started as a standby.
/// Returns at once where nothing is fenced. SystemError where its turn has passed. `processes` that wait share
/// 1,000 looks a second.
void await_turn(int processes);

}  // namespace heddle
