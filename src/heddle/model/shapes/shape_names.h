// Names of models as people write them, compared with the known ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::model {

/// The letters and digits of a name, in small letters: "LLAMA3.1_405B" is "llama31405b".
std::string squeezed_name(std::string_view name);

/// The end of a refusal of a name that is not known: ", did you mean 'X'?" for one near name, ", may be any of X,
/// Y" for several that hold it. An owner in front ("Qwen/") does not matter. "" where no name is near.
std::string names_like(std::string_view name, const std::vector<std::string>& known);

/// The end of a refusal where names_like has nothing to say.
inline constexpr std::string_view kSuchNames = ", accepted: names such as Llama-3-8B, Qwen3-30B-A3B, DeepSeek-V3";

}  // namespace heddle::model
