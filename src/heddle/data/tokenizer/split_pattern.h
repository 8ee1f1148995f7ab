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
  /// Scratch of a match; one a thread. Serves every pattern.
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
  /// A pattern of Oniguruma or Rust in PCRE2's words. A class without another one, [a&&[^b]], is (?:(?![b])[a]). A
  /// script by itself, \p{Han}, is \p{sc:Han}, which else holds what several scripts share.
  static std::string translated(std::string_view pattern);
  /// Why a pattern written for Oniguruma (Hugging Face's engine) may find other pieces here; empty if it finds the
  /// same in text of Unicode 14 (what PCRE2 10.42 knows) without U+180E.
  static std::string differs_from_oniguruma(std::string_view pattern);
  /// A pattern that finds exactly `text`.
  static std::string literally(std::string_view text);

  /// True if it matches nothing at some place.
  bool may_be_empty() const;

  /// The matches of a text in order; empty ones too, but not right behind another match, as Oniguruma's and Rust's
  /// iterators give them. `subject` must be valid UTF-8. ConfigError if the pattern takes too many steps.
  class Matches {
   public:
    Matches(const SplitPattern& pattern, std::string_view subject, Scratch& scratch)
        : pattern_(pattern), subject_(subject), scratch_(scratch) {}
    bool next(size_t& begin, size_t& end);

   private:
    const SplitPattern& pattern_;
    std::string_view subject_;
    Scratch& scratch_;
    size_t from_ = 0;
    size_t last_end_ = std::string_view::npos;
  };

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  bool find(std::string_view subject, size_t start, Scratch& scratch, size_t& begin, size_t& end) const;

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string place_;
  bool fast_ = false;
};

/// Version of the regular expressions' library, and whether it compiles patterns to machine code here.
std::string pattern_library_text();

}  // namespace heddle::data
