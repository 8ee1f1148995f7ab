// GPT-2's alphabet: bytes that print stand for themselves in Latin-1, the others follow from U+0100 on.
#pragma once

#include <string>
#include <string_view>

namespace heddle::data::byte_alphabet {

/// False if the text has a character that stands for no byte.
bool to_bytes(std::string_view text, std::string& bytes);
std::string of_bytes(std::string_view bytes);

}  // namespace heddle::data::byte_alphabet
