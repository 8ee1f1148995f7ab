// Pieces of text around the turns of a conversation.
#pragma once

#include <string_view>

namespace heddle::data {

inline constexpr std::string_view kBlankBytes = " \t\r\n\v\f";

/// The mark that a text begins with, with the blanks before it. It is a tag up to its end ("<|user|>", "[INST]"),
/// or a word, which ends at `most` where the content begins that it stands before. "" where there are only blanks.
std::string_view leading_mark(std::string_view text, size_t most = std::string_view::npos);

/// Bytes of a turn's text that are the beginning of an answer, which a prompt ends with. A prompt may end with more
/// than the turn begins with (the thoughts that it asks for), and begin before the turn does. The first turn may
/// have the beginning further behind, but not behind `most`, where the content stands.
size_t beginning_bytes(std::string_view turn, std::string_view beginning, size_t most = std::string_view::npos);

/// Bytes that both begin with, up to a letter's end.
size_t common_bytes(std::string_view a, std::string_view b);

}  // namespace heddle::data
