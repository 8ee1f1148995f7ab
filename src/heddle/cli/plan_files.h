// What `heddle search` leaves behind besides its table: the explanation as a page, and the best plan as another
// program's input.
#pragma once

#include <string>
#include <vector>

#include "heddle/cli/search_options.h"
#include "heddle/search/explain.h"

namespace heddle::cli {

/// ConfigError for --out without --emit.
void check_plan_files(const SearchOptions& options);

/// Writes --explain and --out, and returns what --emit asks for: the first plan that the target can run.
/// ConfigError with the first one's refusal where there is none.
std::string write_plan_files(const SearchOptions& options, const std::vector<search::Explanation>& plans);

}  // namespace heddle::cli
