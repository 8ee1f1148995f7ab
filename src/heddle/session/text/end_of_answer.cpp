#include "heddle/session/text/end_of_answer.h"

namespace heddle::session {

std::string end_of_answer(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer) {
  const std::string between = chat.between_turns();
  const size_t begin = between.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  const std::string_view rest = std::string_view(between).substr(begin);
  const std::vector<data::TokenId> ids = data::Encoder(tokenizer).encode(rest, data::AddedTokens::parse);
  for (const data::AddedToken& token : tokenizer.spec().added) {
    if (!ids.empty() && token.id == ids[0]) return token.content;
  }
  return std::string(rest.substr(0, rest.find_first_of(" \t\r\n")));
}

}  // namespace heddle::session
