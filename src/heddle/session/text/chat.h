// A conversation as one text: what was said and answered so far, each answer continuing all of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/session/text/continue_text.h"

namespace heddle::session {

class Chat {
 public:
  /// `turn` is how a line stands in the text, at "{}"; an answer follows it. Of the first turn line ends that come
  /// before it are left out where nothing stands before it: `beginning` is what does.
  Chat(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, Continuation how, std::string turn,
       std::string_view beginning);

  Continued answer(std::string_view line, const Watch& watch = {});

 private:
  NextLogits& model_;
  const data::Tokenizer& tokenizer_;
  size_t window_;
  Continuation how_;
  std::string turn_;
  std::vector<data::TokenId> said_;
};

}  // namespace heddle::session
