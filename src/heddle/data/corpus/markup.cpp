#include "heddle/data/corpus/markup.h"

#include "heddle/base/utf8.h"
#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data {

std::string plain_text(std::string_view document, Markup markup) {
  if (!is_valid_utf8(document)) return plain_text(replace_invalid_utf8(document), markup);
  markup::Text text;
  switch (markup) {
    case Markup::plain: markup::read_plain(document, text); break;
    case Markup::markdown: markup::read_markdown(document, text); break;
    case Markup::html: markup::read_html(document, text); break;
    case Markup::pod: markup::read_pod(document, text); break;
    case Markup::rst: markup::read_rst(document, text); break;
    case Markup::dictionary: markup::read_dictionary(document, text); break;
  }
  return text.take();
}

}  // namespace heddle::data
