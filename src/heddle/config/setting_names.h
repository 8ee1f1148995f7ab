// The key that a word means: by its own name, near it, or by what others call it (Row::synonyms).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::config {

/// "train" of "train.learning_rate"; "" without a section.
std::string section_of(std::string_view key);

/// The keys that a word names without being one of them: "lr", "LR", "train.lr" and "max-lr" are
/// train.learning_rate, "clip_norm" is train.clip_norm. Case, '-', '_' and the section don't matter. Mostly one.
std::vector<std::string> keys_called(std::string_view word);

/// ", did you mean 'train.learning_rate'?" for what is no key; "" where none is near.
std::string did_you_mean_key(const std::string& found);

}  // namespace heddle::config
