// Text from outside made harmless inside an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace heddle::observe {

/// Escapes element content and quoted attributes: & < > " ' become entities, bytes that are no UTF-8 U+FFFD;
/// control characters but newline and tab are dropped.
std::string escape_html(std::string_view text);

/// Escapes a name as above; it may break behind its dots and underscores.
std::string escape_breakable(std::string_view name);

/// A JSON string literal, quotes included, that is also safe inside <script>: < > & are \u escapes.
std::string json_string(std::string_view text);

}  // namespace heddle::observe
