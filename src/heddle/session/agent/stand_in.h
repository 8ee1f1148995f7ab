// An agent takes the place of one that hangs. It ends an agent that holds a folder in memory and no longer answers;
// this frees the folder's lock, and the new agent takes over what lies there.
#pragma once

#include <string>

namespace heddle::session {

/// Writes into the lock file of an agent's folder which process holds it.
void note_holder(const std::string& lock);

/// Kills the agent of this run that holds a folder in memory, where there is one on this host, and waits until it
/// is gone. Nobody else is killed: the folder must be this user's alone, its lock must be held, and the process
/// that it names must be an agent of this run.
void end_agent_of(const std::string& folder, const std::string& run);

}  // namespace heddle::session
