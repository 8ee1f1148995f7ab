#include "heddle/session/ranks/stall_lines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/comm/calls/same_clock.h"
#include "heddle/ir/print.h"
#include "heddle/session/run_environment.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLines = 4;  // awaited calls
constexpr int kAround = 2;        // ops before and behind
constexpr size_t kMostWidth = 160;

std::string program_path(const RunFolder& folder) { return folder.ranks() + "/program.txt"; }

// "LISTING OP TEXT" of the ops about this one.
std::vector<std::string> program_about(const RunFolder& folder, int listing, int op) {
  std::vector<std::string> lines;
  std::ifstream file(held_path(program_path(folder)));
  for (std::string line; std::getline(file, line);) {
    int l = -1, o = -1, size = 0;
    if (std::sscanf(line.c_str(), "%d %d %n", &l, &o, &size) < 2 || l != listing || std::abs(o - op) > kAround)
      continue;
    lines.push_back(fmt::format("{} {}", o == op ? "  >" : "   ",
                                escaped(std::string_view(line).substr(static_cast<size_t>(size)), kMostWidth)));
  }
  return lines;
}

}  // namespace

void clear_status_pages(const RunFolder& folder) {
  std::error_code error;
  const std::string ranks = held_path(folder.ranks());
  fs::remove_all(ranks, error);
  if (!error) fs::create_directory(ranks, error);
  if (error) throw SystemError(error.value(), fmt::format("cannot make {}: {}", folder.ranks(), error.message()));
}

void write_program_lines(const RunFolder& folder, const ir::StepProgram& program) {
  std::string text;
  for (size_t l = 0; l < program.listings.size(); ++l) {
    const ir::Listing& listing = program.listings[l];
    for (size_t o = 0; o < listing.ops.size(); ++o)
      text += fmt::format("{} {} {}\n", l, o, ir::text_of(listing, listing.ops[o]));
  }
  write_file(program_path(folder), text, OutputFile::Flush::to_system);
}

void remove_program_lines(const RunFolder& folder) {
  std::error_code ignored;
  fs::remove(held_path(program_path(folder)), ignored);
}

std::vector<std::string> stall_lines(const RunFolder& folder, int64_t generation) {
  return stall_lines(folder, comm::by_one_clock(comm::read_rank_statuses(folder.ranks(), generation), host_name()));
}

std::vector<std::string> stall_lines(const RunFolder& folder, const std::vector<comm::RankStatus>& ranks) {
  const auto now_ns = static_cast<int64_t>(wall_time_s() * 1e9);
  const auto standing = [&](int rank) {
    return std::find_if(ranks.begin(), ranks.end(), [&](const comm::RankStatus& s) { return s.rank == rank; });
  };
  std::vector<std::string> lines;
  auto add_program = [&, added = false](const comm::OpenCall& call) mutable {
    if (std::exchange(added, added || call.listing >= 0) || call.listing < 0) return;
    for (std::string& line : program_about(folder, call.listing, call.op)) lines.push_back(std::move(line));
  };
  // Ranks that others call dead or stopped, wherever such a rank believes it is.
  std::set<int> accused;
  for (const comm::RankStatus& rank : ranks) {
    const bool other = rank.state == comm::RankState::failed && rank.accused >= 0 && rank.accused != rank.rank;
    if (other && accused.insert(rank.accused).second && standing(rank.accused) != ranks.end()) {
      const comm::RankStatus& one = *standing(rank.accused);
      lines.push_back(fmt::format("rank {} ({}) stood {}", one.rank, one.host, comm::place_text(one, now_ns)));
      if (!one.open.empty()) add_program(one.open.front());
    }
  }
  size_t named = 0;
  for (const comm::Awaited& awaited : comm::awaited(ranks)) {
    if (named++ == kMostLines) break;
    lines.push_back(comm::text_of(awaited, ranks, now_ns));
    const auto missing = awaited.missing.empty() ? ranks.end() : standing(awaited.missing[0]);
    if (missing != ranks.end()) lines.back() += fmt::format("; it stood {}", comm::place_text(*missing, now_ns));
    add_program(awaited.call);
    // The ops about the missing rank's last one: it is in an op behind that, or before one.
    const bool first = named == 1 && missing != ranks.end() && missing->open.empty() && missing->last;
    if (!first || missing->last->listing < 0 || missing->last->listing == awaited.call.listing) continue;
    for (std::string& line : program_about(folder, missing->last->listing, missing->last->op))
      lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace heddle::session
