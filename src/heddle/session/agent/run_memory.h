// Places of a run's copies in memory, and of those of the run before. They stand beside what the run keeps on disk,
// where a run that goes on with the folder finds them.
//
//   RUN/.memory      The folder in memory that the ranks made themselves, where no agent gave them one. Below it
//                    those of jobs before, until the run has ended well.
//   RUN/.agents/ID   An agent's folder in memory, as long as it lives or has left something there. On a second line
//                    the address where it shares it with others.
//   RUN/.generation  How often the run was begun or gone on with (base/files/fence.h): a process with a lower one
//                    writes no more checkpoints.
#pragma once

#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/rank_exchange.h"
#include "heddle/train/saved/snapshots.h"

namespace heddle::session {

/// The variable that names this host's agent to a job: the agent's folder in memory.
inline constexpr const char* kAgentVariable = "HEDDLE_AGENT";
/// Under a run's folder: what its agents say of themselves.
inline constexpr const char* kAgents = "/.agents";
/// Before the name of a folder in memory.
inline constexpr const char* kPlace = "/dev/shm/heddle-";
/// Files in an agent's folder: one locked as long as it lives, and the job's token, where it has one.
inline constexpr const char *kAgentLock = "/.agent", *kAgentToken = "/.token";

/// The folder of this host's agent, "" where there is none: what the variable names, or in a supervised job the one
/// that lives here. ConfigError where the variable names no folder of this user's.
std::string agent_folder();
/// An agent's entry in RUN/.agents.
struct AgentEntry {
  std::string path, folder;
  std::string address;  // HOST:PORT; "": it gives nothing to others
};
std::vector<AgentEntry> agent_entries(const RunFolder& folder);
/// Writes the entry for its owner alone. SystemError where the disk says no.
void write_agent_entry(const std::string& path, const std::string& memory, const std::string& address);
/// The folder in memory of an ID, whether it is there or not.
std::string memory_path(const std::string& id);
/// True if a folder in memory that others name exists and is this user's alone.
bool is_memory_here(const std::string& path);
/// The folder in memory of this name, made where it is not there, for its owner alone.
std::string memory_folder(const std::string& id);

/// Returns the place where the copies of a run's ranks will lie; all ranks call it together. `path`: the run's
/// folder, where it exists already, else "".
train::SnapshotPlace place_of_snapshots(comm::World* world, const std::string& path);
/// Returns the place, in which nothing will lie: the start was refused. A folder that the ranks made goes when it
/// is empty.
void release_place(const train::SnapshotPlace& place);
/// The folders that the ranks of the runs before made themselves, and that are still there.
std::vector<std::string> folders_of_ranks(const RunFolder& folder);
/// Rank 0 writes down where they lie, once the run has its folder.
void note_memory(const RunFolder& folder, const train::SnapshotPlace& place);
/// The folders in memory in which something of the run may lie, and that are to be reached from here.
std::vector<std::string> memory_folders(const RunFolder& folder);
/// The number of times that the run was begun; 0: not known.
int64_t generation_of(const RunFolder& folder);
/// The run has ended well: what it noted of memory goes, with the folders that its ranks have made, on every host.
/// All ranks call it, none of which has anything there any more.
void forget_memory(const RunFolder& folder, const train::SnapshotPlace& place, train::RankExchange& ranks);

}  // namespace heddle::session
