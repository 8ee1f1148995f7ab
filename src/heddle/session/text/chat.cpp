#include "heddle/session/text/chat.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::session {

Chat::Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how, std::string turn,
           std::string_view beginning)
    : model_(model), tokenizer_(tokenizer), window_(window), how_(std::move(how)), turn_(std::move(turn)) {
  if (turn_.find("{}") == std::string::npos)
    config_error("--turn: '{}' has no '{{}}', where a line would stand", turn_);
  if (!beginning.empty()) said_ = prompt_ids(tokenizer_, beginning);
}

Continued Chat::answer(std::string_view line, const Watch& watch) {
  std::string turn = turn_;
  turn.replace(turn.find("{}"), 2, line);
  if (said_.empty()) turn.erase(0, std::min(turn.find_first_not_of('\n'), turn.size()));
  const std::vector<data::TokenId> ids =
      said_.empty() ? prompt_ids(tokenizer_, turn) : data::Encoder(tokenizer_).encode(turn);
  said_.insert(said_.end(), ids.begin(), ids.end());
  Continued answer = continue_texts(model_, tokenizer_, window_, {&said_, 1}, 1, how_, watch)[0];
  said_.insert(said_.end(), answer.ids.begin(), answer.ids.end());
  how_.first_draw += answer.drawn;
  return answer;
}

}  // namespace heddle::session
