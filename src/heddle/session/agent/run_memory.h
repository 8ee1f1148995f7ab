// Where a run's copies in memory lie, and where those of the run before are to be found: beside what the run keeps
// on disk, so that whoever goes on with the folder finds them.
//
//   RUN/.memory      the folder in memory that the ranks made themselves, where no agent gave them one; below it
//   those
//                    of jobs before, until the run has ended well
//   RUN/.agents/ID   of each agent: its folder in memory, as long as it lives or has left something there, and on a
//                    second line where it gives of it to others
//   RUN/.generation  how often the run was begun or gone on with (base/files/fence.h): who has a lower one writes
//   no
//                    more checkpoints
#pragma once

#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/rank_exchange.h"
#include "heddle/train/saved/snapshots.h"

namespace heddle::session {

/// What names the agent of this host to a job: the agent's folder in memory.
inline constexpr const char* kAgentVariable = "HEDDLE_AGENT";
/// Under a run's folder: what its agents say of themselves.
inline constexpr const char* kAgents = "/.agents";
/// Before the name of a folder in memory.
inline constexpr const char* kPlace = "/dev/shm/heddle-";
/// In an agent's folder: locked as long as it lives; and the job's token, where it has one.
inline constexpr const char *kAgentLock = "/.agent", *kAgentToken = "/.token";

/// That of this host's agent, "" where there is none: what the variable names, or of a supervised job the one that
/// lives here. ConfigError where the variable names no folder of this user's.
std::string agent_folder();
/// What an agent says of itself in RUN/.agents.
struct AgentEntry {
  std::string path, folder;
  std::string address;  // HOST:PORT; "": it gives nothing to others
};
std::vector<AgentEntry> agent_entries(const RunFolder& folder);
/// Whether a folder in memory that others name is there, and this user's alone.
bool is_memory_here(const std::string& path);
/// The folder in memory of this name, made where it is not there, for its owner alone.
std::string memory_folder(const std::string& id);

/// Where the copies of a run's ranks will lie; all ranks call it together. `path`: the run's folder, where it
/// stands already, else "".
train::SnapshotPlace place_of_snapshots(comm::World* world, const std::string& path);
/// The folders that the ranks of the runs before made themselves, and that are still there.
std::vector<std::string> folders_of_ranks(const RunFolder& folder);
/// Rank 0 writes down where they lie, once the run has its folder.
void note_memory(const RunFolder& folder, const train::SnapshotPlace& place);
/// The folders in memory in which something of the run may lie, and that are to be reached from here.
std::vector<std::string> memory_folders(const RunFolder& folder);
/// How often the run was begun; 0: nobody says.
int64_t generation_of(const RunFolder& folder);
/// The run has ended well: what it noted of memory goes, with the folders that its ranks have made, on every host.
/// All ranks call it, none of which has anything there any more.
void forget_memory(const RunFolder& folder, const train::SnapshotPlace& place, train::RankExchange& ranks);

}  // namespace heddle::session
