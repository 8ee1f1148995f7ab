// Names of models on the Hugging Face Hub, which people write where a folder is wanted.
#pragma once

#include <string>
#include <string_view>

namespace heddle::formats {

/// A hint for a path that leads nowhere and looks like such a name, "Qwen/Qwen3-0.6B": that nothing is downloaded,
/// and how to get the folder. Empty otherwise.
std::string hub_hint(std::string_view path);

}  // namespace heddle::formats
