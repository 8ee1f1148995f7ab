#include "heddle/data/tokenizer/normalizer.h"

#include "heddle/base/error.h"
#include "heddle/data/tokenizer/unicode_form.h"

namespace heddle::data {

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps, const std::string& place) {
  for (const NormalizerStep& step : steps) {
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      steps_.emplace_back(*form);
    } else if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      const std::string& where = replace->place.empty() ? place : replace->place;
      SplitPattern pattern(replace->pattern, where);
      if (pattern.may_be_empty()) config_error("{}: the pattern to replace matches nothing at all", where);
      steps_.emplace_back(Replace{std::move(pattern), replace->content});
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      steps_.emplace_back(*prepend);
    } else {
      steps_.emplace_back(CharsMap(std::get<CharsMapStep>(step)));
    }
  }
}

bool Normalizer::takes_any_bytes() const {
  return !steps_.empty() && std::holds_alternative<CharsMap>(steps_.front());
}

std::string_view Normalizer::apply(std::string_view text, SplitPattern::Scratch& scratch, Held& held) const {
  size_t turn = 0;
  for (const auto& step : steps_) {
    std::string& out = held[turn];
    std::string_view made = text;
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      made = in_form(*form, text, out);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      SplitPattern::Matches matches(replace->pattern, text, scratch);
      size_t done = 0, begin = 0, end = 0;
      out.clear();
      while (matches.next(begin, end)) {
        out.append(text.substr(done, begin - done));
        out += replace->content;
        done = end;
      }
      if (done > 0) made = out.append(text.substr(done));
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      if (!text.empty()) {
        out = prepend->text;
        made = out += text;
      }
    } else {
      std::get<CharsMap>(step).apply(text, out);
      made = out;
    }
    if (made.data() == out.data()) turn = 1 - turn;
    text = made;
  }
  return text;
}

}  // namespace heddle::data
