// Texts in the packages of GNU R: the character vectors of a lazy-load database (NAME.rdb), which is a sequence of
// objects, each its size (4 bytes, the highest first) and a zlib stream of R's serialisation (R Internals, section
// 1.8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::data {

/// The lines of each object that is a vector of texts and nothing else; other objects are passed over. ConfigError
/// if the file is damaged or its objects have more than `most_bytes`.
std::vector<std::string> r_texts(std::string_view database, const std::string& place, int64_t most_bytes);

}  // namespace heddle::data
