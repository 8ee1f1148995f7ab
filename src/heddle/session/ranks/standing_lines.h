// Why a job does not move, for people: who never entered which collective, and the program about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/ir/program.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

/// Makes way for the pages of a new start.
void clear_standing(const RunFolder& folder);
/// Keeps the text of all ops beside the pages, for whoever reads them when no rank is left.
void write_program_lines(const RunFolder& folder, const ir::StepProgram& program);
void remove_program_lines(const RunFolder& folder);
/// For each rank that others wait for, a line; under the first the program's lines about that op. Of pages of this
/// generation alone.
std::vector<std::string> standing_lines(const RunFolder& folder, int64_t generation);

}  // namespace heddle::session
