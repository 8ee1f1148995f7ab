// A shell's patterns: * ? [a-z], with a backslash before what stands for itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::advisor::shell {

/// True if the pattern matches the text; nullopt where comparing them would take too long.
std::optional<bool> matches(std::string_view pattern, std::string_view text);

/// Results of ${NAME#PATTERN}, ##, % and %%, and of ${NAME/PATTERN/WITH} and //; `op` is that operator. nullopt as
/// above.
std::optional<std::string> without(std::string_view text, std::string_view op, std::string_view pattern);
std::optional<std::string> replaced(std::string_view text, bool all, std::string_view pattern,
                                    std::string_view with);

}  // namespace heddle::advisor::shell
