// A conversation as one text: all messages and answers so far, each answer continuing all of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/data/chat/chat_template.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/session/text/end_of_answer.h"

namespace heddle::session {

class Chat {
 public:
  /// `turn` is how a line stands in the text, at "{}"; an answer follows it. Of the first turn line ends that come
  /// before it are left out where nothing stands before it: `beginning` is what does.
  Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how, std::string turn,
       std::string_view beginning);

  /// By a template: a line is a message of the user's, an answer ends where the template ends one. `system`, unless
  /// empty, comes before.
  Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how,
       data::ChatTemplate chat, std::string_view system);

  Continued answer(std::string_view line, const Watch& watch = {});

 private:
  void say(std::string_view line);

  NextLogits& model_;
  const data::Tokenizer& tokenizer_;
  size_t window_;
  Continuation how_;
  std::string turn_;
  std::vector<data::TokenId> said_;
  std::optional<data::ChatTemplate> chat_;
  data::ChatTemplate::Json messages_;
};

}  // namespace heddle::session
