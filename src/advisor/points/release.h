// The software of a measured run: framework, release and date. A table of points has them as columns (`software`,
// `release`, `released`, `reports`); where these are blank, they follow from words of its `source`.
#pragma once

#include <string>
#include <string_view>

namespace heddle::advisor {

inline bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
/// Adds to a list whose items stand behind "; ".
inline void note(std::string& list, const std::string& what) {
  if (!list.empty()) list += "; ";
  list += what;
}

/// Frameworks behave alike where they share code and defaults: the software of a stack is described once.
struct Release {
  std::string framework;  // a row of the table of frameworks; "megatron" where nothing is known
  std::string stack;      // megatron, fsdp, titan, deepspeed, megatron21, xla, mindspore
  std::string name;       // such as "nemo 26.04"; "" where the source names none
  double date = 0;        // years since 2000; 0: not known
  // Memory as `allocated`, `reserved` by the allocator, of the whole `driver`, or allocated in the `first step`,
  // whose passes have no moments yet.
  std::string reports;
  std::string unknown;   // name of software that no row has, taken for a current Megatron-LM; "" where it is known
  std::string document;  // source without release, commit and file: rows of one document share its habits
};

/// Columns take precedence over words of `source`. All words in lower case.
struct ReleaseText {
  std::string_view source, software, release, released, reports;
};
Release read_release(const ReleaseText& text);

/// A date in a text: "2024-03-07", "[26.04", "nemo 25.02", "ngc25.04", "20260813"; as years since 2000, or 0.
double date_in(std::string_view text);

}  // namespace heddle::advisor
