#include "heddle/session/continue_text.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/base/utf8.h"

namespace heddle::session {

namespace {

data::TokenId pick(const std::vector<float>& logits, int64_t vocabulary, double temperature, double uniform) {
  // The model may know more ids than the tokenizer has.
  const auto end = logits.begin() + std::min<int64_t>(std::ssize(logits), vocabulary);
  const auto likeliest = std::max_element(logits.begin(), end);
  if (temperature <= 0) return static_cast<data::TokenId>(likeliest - logits.begin());
  const double most = *likeliest;
  double sum = 0;
  for (auto at = logits.begin(); at != end; ++at) sum += std::exp((*at - most) / temperature);
  double left = uniform * sum;
  for (auto at = logits.begin(); at != end; ++at) {
    left -= std::exp((*at - most) / temperature);
    if (left < 0) return static_cast<data::TokenId>(at - logits.begin());
  }
  return static_cast<data::TokenId>(likeliest - logits.begin());
}

// The bytes at the end of `text` that begin a letter which is not all there yet.
size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xc0) {
      const size_t wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return back < wanted ? back : 0;
    }
    if (byte < 0x80) return 0;
  }
  return 0;
}

}  // namespace

std::string continue_text(train::Trainer& trainer, const data::Tokenizer& tokenizer, std::string_view prompt,
                          const Continuation& how, const std::function<void(std::string_view)>& look) {
  std::vector<data::TokenId> ids = data::Encoder(tokenizer).encode(prompt);
  if (ids.empty() && tokenizer.end_of_text() >= 0) ids.push_back(tokenizer.end_of_text());  // a text's beginning
  if (ids.empty()) config_error("the prompt is empty, and the tokenizer has no token that begins a text");
  const auto window = static_cast<size_t>(trainer.options().plan.sequence_length);
  const RandomKey random = RandomKey(how.seed).with("continue");
  std::string text;
  size_t told = 0;
  for (int64_t i = 0; i < how.tokens; ++i) {
    const size_t seen = std::min(ids.size(), window);
    const std::vector<float> logits = trainer.next_logits({ids.data() + ids.size() - seen, seen});
    const data::TokenId id =
        pick(logits, tokenizer.vocabulary(), how.temperature, random.uniform(static_cast<uint64_t>(i)));
    if (id == tokenizer.end_of_text()) break;
    ids.push_back(id);
    text += tokenizer.decode({&id, 1});
    const size_t whole = text.size() - unfinished_bytes(text);
    if (look && whole > told) look(std::string_view(text).substr(told, whole - told));
    told = std::max(told, whole);
  }
  if (look && told < text.size()) look(std::string_view(text).substr(told));
  return text;
}

std::string terminal_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    if (!letter.valid) {
      out += "\xef\xbf\xbd";
    } else if (!is_control(letter.code) || letter.code == '\n' || letter.code == '\t') {
      out += text.substr(0, letter.bytes);
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

}  // namespace heddle::session
