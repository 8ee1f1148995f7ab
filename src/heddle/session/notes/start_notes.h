// What a run that begins from weights is told about what lies beside them.
#pragma once

#include <string>

namespace heddle::session {

/// One line where a tokenizer lies beside the weights and is not `tokenizer` (a path, "": none): the weights
/// then know other tokens under the same ids. "" where there is nothing to say.
std::string other_tokenizer(const std::string& start, const std::string& tokenizer);

}  // namespace heddle::session
