#include "heddle/session/text/chat.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::session {

Chat::Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how, std::string turn,
           std::string_view beginning)
    : model_(model), tokenizer_(tokenizer), window_(window), how_(std::move(how)), turn_(std::move(turn)) {
  if (turn_.find("{}") == std::string::npos)
    config_error("--turn: '{}' has no '{{}}', the place of the line", turn_);
  if (!beginning.empty()) said_ = prompt_ids(tokenizer_, beginning);
}

namespace {

data::ChatTemplate::Json message(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

Chat::Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how,
           data::ChatTemplate chat, std::string_view system)
    : model_(model),
      tokenizer_(tokenizer),
      window_(window),
      how_(std::move(how)),
      chat_(std::move(chat)),
      messages_(data::ChatTemplate::Json::array()) {
  for (std::string& end : ends_of_answers(*chat_, tokenizer_)) how_.stop.push_back(std::move(end));
  if (!system.empty()) messages_.push_back(message("system", system));
}

// Adds a line to what was said, or has the template write all of it anew.
void Chat::say(std::string_view line) {
  if (chat_) {
    messages_.push_back(message("user", line));
    said_ = data::Encoder(tokenizer_).encode(chat_->render(messages_, true), data::AddedTokens::parse);
    if (said_.empty()) config_error("the chat template makes no text of a conversation");
    return;
  }
  std::string turn = turn_;
  turn.replace(turn.find("{}"), 2, line);
  if (said_.empty()) turn.erase(0, std::min(turn.find_first_not_of('\n'), turn.size()));
  const std::vector<data::TokenId> ids =
      said_.empty() ? prompt_ids(tokenizer_, turn) : data::Encoder(tokenizer_).encode(turn);
  said_.insert(said_.end(), ids.begin(), ids.end());
}

Continued Chat::answer(std::string_view line, const Watch& watch) {
  say(line);
  Continued answer = continue_texts(model_, tokenizer_, window_, {&said_, 1}, 1, how_, watch)[0];
  if (chat_) messages_.push_back(message("assistant", answer.text));
  said_.insert(said_.end(), answer.ids.begin(), answer.ids.end());
  how_.first_draw += answer.drawn;
  return answer;
}

}  // namespace heddle::session
