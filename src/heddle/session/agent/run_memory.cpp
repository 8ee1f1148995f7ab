#include "heddle/session/agent/run_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/files/random_id.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/.memory";
constexpr int64_t kMostMemoryText = 4096;

// A folder of this user's that nobody else enters.
bool is_own_folder(const std::string& path) {
  struct stat is {};
  return ::lstat(path.c_str(), &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == geteuid() &&
         (is.st_mode & 077) == 0;
}

std::string text_in(const std::string& path) {
  try {
    return read_file(path, kMostMemoryText);
  } catch (const Error&) {
    return "";
  }
}

bool is_memory_name(const std::string& path) {
  return path.starts_with(kPlace) && path.find('/', std::strlen(kPlace)) == std::string::npos;
}

// All that the run has noted, whichever host has them.
std::vector<std::string> named_folders(const RunFolder& folder) {
  std::vector<std::string> named;
  std::istringstream lines(text_in(folder.path + kMemory));
  for (std::string path; std::getline(lines, path);) {
    if (is_memory_name(path)) named.push_back(path);
  }
  return named;
}

}  // namespace

// A process that may write into the run's folder doesn't choose what is read elsewhere.
bool is_memory_here(const std::string& path) { return is_memory_name(path) && is_own_folder(path); }

std::vector<AgentEntry> agent_entries(const RunFolder& folder) {
  constexpr size_t kMost = 4096;
  std::vector<AgentEntry> entries;
  std::error_code ignored;
  const std::string registry = held_path(folder.path + kAgents);
  struct stat owner {};
  if (::lstat(registry.c_str(), &owner) != 0 || !S_ISDIR(owner.st_mode)) return entries;
  for (fs::directory_iterator at(registry, ignored), end; !ignored && at != end && entries.size() < kMost;
       at.increment(ignored)) {
    // An entry makes a rank ask at an address: only its folder's owner may say so.
    struct stat is {};
    if (::lstat(at->path().c_str(), &is) != 0 || !S_ISREG(is.st_mode) || is.st_uid != owner.st_uid) continue;
    const std::string text = text_in(at->path().string());
    const size_t first = text.find('\n');
    AgentEntry entry{at->path().string(), text.substr(0, first), ""};
    if (first != text.npos) entry.address = text.substr(first + 1, text.find('\n', first + 1) - first - 1);
    // Agents tell theirs in digits: no name is looked up for an entry's sake.
    if (entry.address.find_first_not_of("0123456789.:") != entry.address.npos) entry.address = "";
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.folder < b.folder; });
  return entries;
}

void write_agent_entry(const std::string& path, const std::string& memory, const std::string& address) {
  OutputFile file(path, OutputFile::Open::replace, OutputFile::Access::owner, OutputFile::Flush::to_system);
  file.write(memory + "\n" + address + "\n");
  file.commit();
}

std::string memory_path(const std::string& id) { return kPlace + id; }

std::string agent_folder() {
  const char* named = std::getenv(kAgentVariable);
  if (named == nullptr || *named == '\0') {
    if (!own_fence()) return "";
    for (const AgentEntry& entry : agent_entries({own_fence()->folder})) {
      const std::string lock = entry.folder + kAgentLock;
      std::error_code ignored;
      if (is_memory_here(entry.folder) && fs::exists(lock, ignored) &&
          !train::FileHold::take(lock, train::FileHold::How::shared))
        return entry.folder;
    }
    return "";
  }
  if (!is_own_folder(named)) {
    config_error("{} is '{}': no folder of this user alone; the `ready` line of heddle agent names it",
                 kAgentVariable, named);
  }
  return named;
}

std::string memory_folder(const std::string& id) {
  const std::string path = kPlace + id;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw SystemError(errno, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  if (!is_own_folder(path)) config_error("{}: no folder of this user alone", path);
  return path;
}

std::vector<std::string> folders_of_ranks(const RunFolder& folder) {
  std::vector<std::string> found = named_folders(folder);
  std::erase_if(found, [](const std::string& path) { return !is_memory_here(path); });
  return found;
}

namespace {

// Those before stay known until the run ends: one that is gone from this host may yet be on another.
void name_folder(const RunFolder& folder, const std::string& path) {
  constexpr size_t kMost = 64;
  std::vector<std::string> named = named_folders(folder);
  std::erase(named, path);
  named.insert(named.begin(), path);
  named.resize(std::min(named.size(), kMost));
  write_file(folder.path + kMemory, fmt::format("{}\n", fmt::join(named, "\n")));
}

}  // namespace

train::SnapshotPlace place_of_snapshots(comm::World* world, const std::string& path) {
  train::RankExchange ranks(world);
  const std::string own = agent_folder();
  const bool by_agents = !ranks.any(own.empty());  // all hosts or none
  const int64_t next = own_fence() ? own_fence()->number : path.empty() ? 1 : generation_of({path}) + 1;
  const std::string agreed = ranks.from_first_rank(fmt::format("{} {}", random_id(), next));
  train::SnapshotPlace place;
  const size_t space = agreed.find(' ');
  place.run = agreed.substr(0, space);
  place.generation = std::stoll(agreed.substr(space + 1));
  place.kept = by_agents;
  place.folder = by_agents ? own : kPlace + place.run;
  if (by_agents) return place;
  // Named before it is there, for a rank that dies in between leaves nobody else who knows of it. A supervisor
  // holds the run's folder for its ranks; those that have none don't hold it yet.
  if (ranks.leads() && own_fence()) name_folder({own_fence()->folder}, place.folder);
  ranks.from_first_rank("");
  try {
    memory_folder(place.run);
  } catch (const SystemError&) {  // no room for it shows, to all ranks, where room for the copies is looked for
  }
  return place;
}

void release_place(const train::SnapshotPlace& place) {
  if (!place.kept && is_memory_name(place.folder)) ::rmdir(place.folder.c_str());
}

void note_memory(const RunFolder& folder, const train::SnapshotPlace& place) {
  if (!own_fence()) raise_fence({place.generation, place.run, folder.path});  // else its supervisor has
  if (!place.kept) name_folder(folder, place.folder);
}

std::vector<std::string> memory_folders(const RunFolder& folder) {
  std::vector<std::string> named = folders_of_ranks(folder);
  for (const AgentEntry& entry : agent_entries(folder)) named.push_back(entry.folder);
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  std::vector<std::string> found;
  for (const std::string& path : named) {
    if (is_memory_here(path)) found.push_back(path);
  }
  // Copies held for another host come behind those that hosts hold themselves.
  for (size_t i = 0, own = found.size(); i < own; ++i) {
    const std::string partner = found[i] + "/" + train::kPartnerFolder;
    if (is_own_folder(partner)) found.push_back(partner);
  }
  return found;
}

int64_t generation_of(const RunFolder& folder) {
  const std::optional<Fence> fence = open_fence(folder.path);
  return fence ? fence->number : 0;
}

void forget_memory(const RunFolder& folder, const train::SnapshotPlace& place, train::RankExchange& ranks) {
  if (place.kept) return;
  ranks.any(false);
  std::error_code ignored;
  for (const std::string& before : folders_of_ranks(folder)) fs::remove_all(before, ignored);
  if (place.folder.starts_with(kPlace)) fs::remove_all(place.folder, ignored);
  ranks.any(false);  // every host has read what they are called
  if (ranks.leads()) ::unlink(held_path(folder.path + kMemory).c_str());
}

}  // namespace heddle::session
