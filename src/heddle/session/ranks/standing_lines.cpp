#include "heddle/session/ranks/standing_lines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/comm/calls/standing.h"
#include "heddle/ir/print.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLines = 4;  // of those who are waited for
constexpr int kAround = 2;        // ops before and behind
constexpr size_t kMostWidth = 160;

std::string program_path(const RunFolder& folder) { return folder.ranks() + "/program.txt"; }

// "LISTING OP TEXT" of the ops about this one.
std::vector<std::string> program_about(const RunFolder& folder, int listing, int op) {
  std::vector<std::string> lines;
  std::ifstream file(program_path(folder));
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

void clear_standing(const RunFolder& folder) {
  std::error_code error;
  fs::remove_all(folder.ranks(), error);
  if (!error) fs::create_directory(folder.ranks(), error);
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
  fs::remove(program_path(folder), ignored);
}

std::vector<std::string> standing_lines(const RunFolder& folder, int64_t generation) {
  const std::vector<comm::Standing> ranks = comm::read_standings(folder.ranks(), generation);
  const auto now_ns = static_cast<int64_t>(wall_time_s() * 1e9);
  const auto standing = [&](int rank) {
    return std::find_if(ranks.begin(), ranks.end(), [&](const comm::Standing& s) { return s.rank == rank; });
  };
  std::vector<std::string> lines;
  auto add_program = [&, told = false](const comm::OpenCall& call) mutable {
    if (std::exchange(told, told || call.listing >= 0) || call.listing < 0) return;
    for (std::string& line : program_about(folder, call.listing, call.op)) lines.push_back(std::move(line));
  };
  // Whom the others call dead or stopped, wherever that one believes it is.
  std::set<int> accused;
  for (const comm::Standing& rank : ranks) {
    const bool other = rank.state == comm::RankState::failed && rank.accused >= 0 && rank.accused != rank.rank;
    if (other && accused.insert(rank.accused).second && standing(rank.accused) != ranks.end()) {
      const comm::Standing& one = *standing(rank.accused);
      lines.push_back(fmt::format("rank {} ({}) stood {}", one.rank, one.host, comm::place_text(one, now_ns)));
      if (!one.open.empty()) add_program(one.open.front());
    }
  }
  size_t told = 0;
  for (const comm::Awaited& awaited : comm::awaited(ranks)) {
    if (told++ == kMostLines) break;
    lines.push_back(comm::text_of(awaited, ranks, now_ns));
    const auto missing = awaited.missing.empty() ? ranks.end() : standing(awaited.missing[0]);
    if (missing != ranks.end()) lines.back() += fmt::format("; it stood {}", comm::place_text(*missing, now_ns));
    add_program(awaited.call);
    // Where the one that does not come has been last: what stands behind that op it is in, or before.
    const bool first = told == 1 && missing != ranks.end() && missing->open.empty() && missing->last;
    if (!first || missing->last->listing < 0 || missing->last->listing == awaited.call.listing) continue;
    for (std::string& line : program_about(folder, missing->last->listing, missing->last->op))
      lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace heddle::session
