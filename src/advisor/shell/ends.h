// The places in a script where a word, a quote, a bracket or a here-document ends.
#pragma once

#include <string>
#include <string_view>

namespace heddle::advisor::shell {

/// Returns the place behind the bracket that closes what was opened just before `at`: quotes, nested brackets,
/// here-documents are passed over. npos where it is never closed.
size_t behind_close(std::string_view text, size_t at, char open, char close);
/// Returns the place behind the quote that closes; `at` is behind the opening one. npos where it is never closed.
size_t behind_quote(std::string_view text, size_t at, char quote);
/// Returns the place behind the line that ends a here-document, whose mark was just read at the end of a line.
size_t behind_heredoc(std::string_view text, size_t at, std::string_view mark, bool tabs, std::string_view* body);
/// Returns "EOF" of <<EOF, <<-'EOF': without quotes, and sets `quoted` if it had some.
std::string heredoc_mark(std::string_view word, bool& quoted);
/// Returns the place behind a word without quotes.
size_t behind_plain_word(std::string_view text, size_t at);

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool starts_name(char c);
bool is_name(char c);

}  // namespace heddle::advisor::shell
