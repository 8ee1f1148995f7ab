#include "heddle/session/text/text_stream.h"

#include <algorithm>

namespace heddle::session {

namespace {

// The bytes at the end of `text` that begin a letter which is not all there yet.
size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xc0) {
      const size_t wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return back < wanted ? back : 0;
    }
    if (byte < 0x80) return 0;
  }
  return 0;
}

// The bytes at the end of `text` that begin `word` and are not all of it.
size_t begun_bytes(std::string_view text, std::string_view word) {
  for (size_t count = std::min(text.size(), word.size() - 1); count > 0; --count) {
    if (text.ends_with(word.substr(0, count))) return count;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stop_words, Look look)
    : stop_words_(std::move(stop_words)), look_(std::move(look)) {
  std::erase(stop_words_, "");
}

bool TextStream::add(std::string_view bytes) {
  if (stopped_) return true;
  text_ += bytes;
  size_t stop = std::string::npos, begun = 0;
  for (const std::string& word : stop_words_) {
    stop = std::min(stop, text_.find(word, shown_));  // the shown part began none
    begun = std::max(begun, begun_bytes(text_, word));
  }
  if (stop != std::string::npos) {
    text_.resize(stop);
    stopped_ = true;
    show(text_.size());
    return true;
  }
  show(text_.size() - std::max(begun, unfinished_bytes(text_)));
  return false;
}

void TextStream::end() { show(text_.size()); }

void TextStream::show(size_t until) {
  if (until <= shown_) return;
  if (look_) look_(std::string_view(text_).substr(shown_, until - shown_));
  shown_ = until;
}

}  // namespace heddle::session
