// The end of an answer in a chat template's words.
#pragma once

#include <string>
#include <vector>

#include "heddle/data/chat/chat_template.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::session {

/// Strings before which an answer of the template ends: the first special token of the mark behind one, or the
/// mark's own text. A template that closes no turn has those of a user's turn and of a tool's. Empty where nothing
/// is known.
std::vector<std::string> ends_of_answers(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer);

}  // namespace heddle::session
