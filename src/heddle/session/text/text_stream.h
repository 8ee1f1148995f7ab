// A text that comes in pieces of bytes, token by token, shown in whole letters and up to the first stop word.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::session {

class TextStream {
 public:
  using Look = std::function<void(std::string_view)>;
  /// `look`, if there is one, gets each piece as soon as it is known to belong to the text.
  TextStream(std::vector<std::string> stop_words, Look look);

  /// True once a stop word has come, wherever its bytes are cut. It and what follows are no part of the text.
  bool add(std::string_view bytes);
  /// Ends the text: the begin of a possible stop word or letter comes as it is.
  void end();
  const std::string& text() const { return text_; }

 private:
  void show(size_t until);

  std::vector<std::string> stop_words_;
  Look look_;
  std::string text_;
  size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace heddle::session
