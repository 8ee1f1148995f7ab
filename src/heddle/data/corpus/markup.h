// Plain text out of documentation: prose paragraphs on one line each, code and tables line by line, blank lines
// between.
//
// Enough of each language to read the documentation that Debian installs; what isn't understood is kept as text.
// Menus, scripts, images, index entries and paragraphs that are nothing but links go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::data {

enum class Markup : uint8_t { plain, markdown, html, pod, rst, dictionary };

/// The text of a document in valid UTF-8. Ends with a line end unless empty.
std::string plain_text(std::string_view document, Markup markup);

}  // namespace heddle::data
