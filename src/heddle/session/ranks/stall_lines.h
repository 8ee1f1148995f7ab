// Why a job does not move, for people: who never entered which collective, and the program about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/comm/calls/rank_status.h"
#include "heddle/ir/program.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

/// Makes way for the pages of a new start.
void clear_status_pages(const RunFolder& folder);
/// Keeps the text of all ops beside the pages, for readers when no rank is left.
void write_program_lines(const RunFolder& folder, const ir::StepProgram& program);
void remove_program_lines(const RunFolder& folder);
/// For each rank that others wait for, a line; under the first the program's lines about that op. Of pages of this
/// generation alone, by this host's clock; or of these, whose times are by it.
std::vector<std::string> stall_lines(const RunFolder& folder, int64_t generation);
std::vector<std::string> stall_lines(const RunFolder& folder, const std::vector<comm::RankStatus>& ranks);

}  // namespace heddle::session
