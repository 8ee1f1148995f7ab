// Notes for a run that begins from weights, on the files beside them.
#pragma once

#include <string>

#include "heddle/config/run_config.h"

namespace heddle::session {

/// The tokenizer of the released folder that a run begins from, where the run names none; else "".
std::string tokenizer_of_start(const config::RunConfig& config);

/// One line where a tokenizer lies beside the weights and is not `tokenizer` (a path, "": none): the weights
/// then know other tokens under the same ids. "" where there is nothing to say.
std::string other_tokenizer(const std::string& start, const std::string& tokenizer);

}  // namespace heddle::session
