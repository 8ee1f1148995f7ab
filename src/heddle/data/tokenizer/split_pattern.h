// A compiled regular expression that finds the pieces of text a tokenizer merges within.
//
// PCRE2 with Unicode classes and just-in-time code. Patterns come from files and are not trusted: they are compiled
// under length limits, may not break UTF-8 apart (\C), and each match runs under a limit of steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace heddle::data {

class SplitPattern {
 public:
  /// What a match writes; one a thread. Serves every pattern.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class SplitPattern;
    pcre2_real_match_data_8* match_ = nullptr;
    pcre2_real_match_context_8* limits_ = nullptr;
  };

  /// `place` is where the pattern stands, for messages. ConfigError if it isn't a valid expression.
  SplitPattern(const std::string& pattern, const std::string& place);
  /// Why a pattern written for Oniguruma (Hugging Face's engine) may find other pieces here; empty if it finds the
  /// same in text of Unicode 14 (what PCRE2 10.42 knows) without U+180E.
  static std::string differs_from_oniguruma(std::string_view pattern);
  /// A pattern that finds exactly `text`.
  static std::string literally(std::string_view text);

  /// Finds the first match that begins at or after `start` and isn't empty. `subject` must be valid UTF-8 and
  /// `start` a character's beginning. ConfigError if the pattern takes too many steps.
  bool find(std::string_view subject, size_t start, Scratch& scratch, size_t& begin, size_t& end) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string place_;
  bool fast_ = false;
};

/// Version of the regular expressions' library, and whether it compiles patterns to machine code here.
std::string pattern_library_text();

}  // namespace heddle::data
