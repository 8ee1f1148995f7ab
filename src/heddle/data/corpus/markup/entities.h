// Characters by name or number, as HTML and POD write them.
#pragma once

#include <string>
#include <string_view>

namespace heddle::data::markup {

/// Appends what `&name;` stands for; the entity as it is where that is not known.
void append_entity(std::string_view name, std::string& out);

}  // namespace heddle::data::markup
