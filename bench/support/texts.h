// Texts of several kinds for benches of what reads text, the same in every run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::bench {

struct Text {
  std::string kind;
  std::vector<std::string> documents;
  int64_t size_bytes() const;
};

/// About `most_bytes` of each: "english", prose of the demonstration (data/corpus) or of `file`;
/// "chinese", words drawn as often as words of a language are, without a space between them; "code", C++ of this
/// repository; "mixed", lines of all three in turn, with emoji between them.
std::vector<Text> make_texts(int64_t most_bytes, const std::string& file = "");

}  // namespace heddle::bench
