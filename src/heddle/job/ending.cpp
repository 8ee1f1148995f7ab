#include "heddle/job/ending.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <limits>

#include "heddle/base/escaped.h"
#include "heddle/base/failure.h"

namespace heddle::job {

namespace {

constexpr size_t kMostReasonBytes = 400;
constexpr std::string_view kOurs = "heddle: ", kWarning = "heddle: warning: ";

bool holds(const std::vector<std::string>& lines, std::string_view part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& l) { return l.find(part) != l.npos; });
}

// The program's own last words, or the launcher's where it was silent.
std::string told_reason(const Evidence& e) {
  for (auto line = e.said.rbegin(); line != e.said.rend(); ++line) {
    if (line->starts_with(kOurs) && !line->starts_with(kWarning)) return line->substr(kOurs.size());
  }
  for (const comm::RankStatus& rank : e.ranks) {
    if (rank.state == comm::RankState::failed && !rank.reason.empty()) return rank.reason;
  }
  for (const std::string& line : e.said) {
    if (line.find("exited on signal") != line.npos || line.find("lost communication") != line.npos ||
        line.starts_with("srun: error:"))
      return line;
  }
  return "";
}

// A launcher has statuses of its own beyond those by which a shell reports a signal: mpirun's 213 is none.
std::string how_it_ended(const Evidence& e) {
  const bool by_signal = e.status > 128 && e.status - 128 < NSIG;
  std::string text = by_signal ? fmt::format("the launcher was ended by signal {}", e.status - 128)
                               : fmt::format("the launcher ended with status {}", e.status);
  if (e.ranks.empty()) text += " before a rank had begun";
  const auto last = std::find_if(e.said.rbegin(), e.said.rend(), [](const std::string& l) { return !l.empty(); });
  return last == e.said.rend() ? text : text + "; it said last: " + *last;
}

// "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 9 (Killed)."; and what ranks said that
// never came to have a page.
void add_named_suspects(const std::vector<std::string>& said, std::vector<int>& suspects) {
  for (const std::string& line : said) {
    if (const int silent = silent_rank(line, std::numeric_limits<int>::max()); silent >= 0)
      suspects.push_back(silent);
    if (const int killed = killed_task(line); killed >= 0) suspects.push_back(killed);
    const size_t at = line.find("process rank ");
    int rank = 0;
    if (at != line.npos && line.find("exited on signal") != line.npos &&
        std::sscanf(line.c_str() + at, "process rank %d", &rank) == 1)
      suspects.push_back(rank);
  }
}

}  // namespace

int silent_rank(std::string_view line, int ranks) {
  constexpr std::string_view kRank = "heddle: rank ", kSilent = " is dead, stopped or cut off";
  const size_t at = line.find(kRank);
  if (at == line.npos || line.find(kSilent, at) == line.npos) return -1;
  int rank = -1;
  const char* const first = line.data() + at + kRank.size();
  if (std::from_chars(first, line.data() + line.size(), rank).ec != std::errc()) return -1;
  return rank < ranks ? rank : -1;
}

// "srun: error: node1: task 1: Killed", "srun: error: node2: tasks 2-3: Segmentation fault".
int killed_task(std::string_view line) {
  constexpr std::string_view kTask = ": task", kEndedItself = ": Exited with exit code";
  const size_t at = line.find(kTask);
  if (!line.starts_with("srun: error: ") || at == line.npos || line.find(kEndedItself, at) != line.npos) return -1;
  std::string_view rest = line.substr(at + kTask.size());
  if (rest.starts_with('s')) rest.remove_prefix(1);
  int task = -1;
  if (!rest.starts_with(' ') || std::from_chars(rest.data() + 1, rest.data() + rest.size(), task).ec != std::errc())
    return -1;
  return task;
}

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::done: return "done";
    case Cause::mistake: return "mistake";
    case Cause::asked: return "asked";
    case Cause::fault: return "fault";
  }
  return "";
}

Ending ending_of(const Evidence& e) {
  Ending ending;
  for (const comm::RankStatus& rank : e.ranks) {
    ending.step = std::max(ending.step, rank.step);
    const bool known = rank.accused >= 0 && rank.accused < rank.ranks;
    if (rank.state == comm::RankState::failed && known) ending.suspects.push_back(rank.accused);
  }
  add_named_suspects(e.said, ending.suspects);
  std::sort(ending.suspects.begin(), ending.suspects.end());
  ending.suspects.erase(std::unique(ending.suspects.begin(), ending.suspects.end()), ending.suspects.end());
  ending.reason = e.forced;
  if (ending.reason.empty()) ending.reason = told_reason(e);
  if (ending.reason.empty()) ending.reason = how_it_ended(e);
  ending.reason = escaped(ending.reason, kMostReasonBytes);
  const bool forced = !e.forced.empty();
  const bool input = std::any_of(e.ranks.begin(), e.ranks.end(), [](const comm::RankStatus& rank) {
    return rank.state == comm::RankState::failed && rank.input;
  });
  if (!forced && e.status == kDone) {
    ending.cause = Cause::done;
    ending.reason.clear();
  } else if (!forced && (e.status == kBadInput || input)) {
    // A generation that ended after its last checkpoint and before its launcher's end leaves nothing to be done.
    ending.cause = holds(e.said, "nothing is left to do") ? Cause::done : Cause::mistake;
  } else if (e.asked || (!forced && e.status == kInterrupted)) {
    ending.cause = Cause::asked;
  }
  return ending;
}

}  // namespace heddle::job
