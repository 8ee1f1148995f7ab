// Expands the words of a script: quotes, ${NAME:-default} and its kin, $((arithmetic)), $(commands).
#pragma once

#include <string>
#include <string_view>

#include "advisor/shell/arithmetic.h"
#include "advisor/shell/state.h"
#include "advisor/shell/syntax.h"

namespace heddle::advisor::shell {

/// Returns the word as a command gets it: cut at blanks where it isn't quoted, none or several words.
Values words_of(State& state, const Word& word);
/// Returns the word as an assignment and a case get it: not cut.
std::string text_of(State& state, const Word& word);
/// Returns the word as a pattern, in which quoted text stands for itself.
std::string pattern_of(State& state, const Word& word);
/// Returns the text as between double quotes.
std::string text_between_quotes(State& state, std::string_view text, int line);
/// Returns the text of a here-document or a here-string.
std::string document_of(State& state, const Heredoc& heredoc);
/// Cuts a text at separators as `read` does: the last of `most` fields holds the rest.
Values fields_of(std::string_view text, std::string_view separators, size_t most = SIZE_MAX);

/// Returns the text of $'…'.
std::string without_escapes(std::string_view text);

/// The value of an expression; the names that it sets are set.
Number number_of(State& state, std::string_view text, int line);

/// The name under which an element of a list is kept, "NAME[key]"; elements of numbers are those of the list.
std::string element_name(const std::string& list, const std::string& key);

}  // namespace heddle::advisor::shell
