// Where an answer in a chat template's words ends.
#pragma once

#include <string>

#include "heddle/data/chat/chat_template.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::session {

/// The first special token of what comes behind an answer of the template's, or its first word: an answer ends
/// before it. "" where nothing does.
std::string end_of_answer(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer);

}  // namespace heddle::session
