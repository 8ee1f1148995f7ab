// The formats that documents come in: a file each, which adds a document's text to what there is.
#pragma once

#include <string_view>

#include "heddle/data/corpus/markup/text.h"

namespace heddle::data::markup {

void read_plain(std::string_view document, Text& text);
void read_markdown(std::string_view document, Text& text);
void read_html(std::string_view document, Text& text);
void read_pod(std::string_view document, Text& text);
void read_rst(std::string_view document, Text& text);
void read_dictionary(std::string_view document, Text& text);

}  // namespace heddle::data::markup
