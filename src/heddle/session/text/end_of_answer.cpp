#include "heddle/session/text/end_of_answer.h"

#include <algorithm>

#include "heddle/data/chat/answers.h"

namespace heddle::session {

namespace {

// The added token that a mark begins with, or the mark itself, without the blanks before it.
std::string end_in(std::string_view mark, const data::Tokenizer& tokenizer) {
  const size_t begin = mark.find_first_not_of(data::kBlankBytes);
  if (begin == std::string_view::npos) return "";
  mark.remove_prefix(begin);
  const std::vector<data::TokenId> ids = data::Encoder(tokenizer).encode(mark, data::AddedTokens::parse);
  for (const data::AddedToken& token : tokenizer.spec().added) {
    if (!ids.empty() && token.id == ids[0]) return token.content;
  }
  return std::string(mark);
}

}  // namespace

std::vector<std::string> ends_of_answers(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer) {
  std::vector<std::string> ends;
  for (const std::string& mark : {chat.marks().end, chat.marks().end_of_calls}) {
    std::string end = end_in(mark, tokenizer);
    if (!end.empty() && std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(std::move(end));
  }
  return ends;
}

}  // namespace heddle::session
