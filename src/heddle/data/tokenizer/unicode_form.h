// Unicode's normal forms (annex 15), by utf8proc. Only the stretches that may not be in the form are rewritten:
// between two characters that neither join what is beside them nor change.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// `text` in the form, which must be valid UTF-8: a view of it, or of `held` where something changed.
std::string_view in_form(UnicodeForm form, std::string_view text, std::string& held);

}  // namespace heddle::data
