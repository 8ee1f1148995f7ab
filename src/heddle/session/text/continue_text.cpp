#include "heddle/session/text/continue_text.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/base/utf8.h"
#include "heddle/session/text/text_stream.h"

namespace heddle::session {

std::string_view word_of(End end) {
  static constexpr std::string_view words[] = {"length", "end_of_text", "stop_word", "interrupted"};
  return words[static_cast<size_t>(end)];
}

size_t window_begin(size_t length, size_t window) {
  if (length <= window) return 0;
  const size_t kept = std::max<size_t>(1, window / 2), step = window + 1 - kept;
  return (length - window + step - 1) / step * step;
}

std::vector<data::TokenId> prompt_ids(const data::Tokenizer& tokenizer, std::string_view prompt) {
  std::vector<data::TokenId> ids = tokenizer.spec().before;  // ids with which texts of training begin
  data::Encoder(tokenizer).encode(prompt, ids);
  if (ids.empty() && tokenizer.end_of_text() >= 0) ids.push_back(tokenizer.end_of_text());  // a text's beginning
  if (ids.empty()) config_error("the prompt is empty, and the tokenizer has no token that begins a text");
  return ids;
}

namespace {

// A text under way.
struct Text {
  size_t prompt = 0;
  int64_t place = 0;  // among those side by side
  std::vector<data::TokenId> ids;
  TextStream stream;
  Continued made;
};

// Keeps the ids that the text, cut at a stop word, has as a whole; the rest of it is encoded anew.
void cut_ids(const data::Tokenizer& tokenizer, Continued& made) {
  size_t bytes = 0, count = 0;
  for (; count < made.ids.size(); ++count) {
    const size_t next = bytes + tokenizer.decode({&made.ids[count], 1}).size();
    if (next > made.text.size()) break;
    bytes = next;
  }
  made.ids.resize(count);
  if (bytes == made.text.size()) return;
  const std::vector<data::TokenId> rest =
      data::Encoder(tokenizer).encode(std::string_view(made.text).substr(bytes));
  made.ids.insert(made.ids.end(), rest.begin(), rest.end());
}

class Texts {
 public:
  Texts(NextLogits& model, const data::Tokenizer& tokenizer, size_t window, const Continuation& how,
        const Watch& watch)
      : model_(model),
        tokenizer_(tokenizer),
        window_(window),
        how_(how),
        watch_(watch),
        random_(RandomKey(how.seed).with("continue")) {}

  std::vector<Continued> run(std::span<const std::vector<data::TokenId>> prompts, size_t at_once) {
    std::vector<Continued> done(prompts.size());
    std::vector<Text> under_way;
    std::vector<int64_t> free;
    for (size_t place = at_once; place-- > 0;) free.push_back(static_cast<int64_t>(place));
    for (size_t next = 0; next < prompts.size() || !under_way.empty();) {
      while (next < prompts.size() && !free.empty()) {
        under_way.push_back(begin(next, prompts[next], free.back()));
        free.pop_back();
        ++next;
      }
      step(under_way);
      const bool interrupted = watch_.interrupted && watch_.interrupted();
      std::vector<Text> going_on;
      for (Text& text : under_way) {
        if (interrupted && !ended(text)) text.made.end = End::interrupted;
        if (!ended(text)) {
          going_on.push_back(std::move(text));
          continue;
        }
        finish(text);
        free.push_back(text.place);
        done[text.prompt] = std::move(text.made);
      }
      under_way = std::move(going_on);
      if (interrupted) {
        for (; next < prompts.size(); ++next) done[next].end = End::interrupted;
        break;
      }
    }
    return done;
  }

 private:
  Text begin(size_t prompt, const std::vector<data::TokenId>& ids, int64_t place) const {
    TextStream::Look look;
    if (watch_.piece) look = [this, prompt](std::string_view piece) { watch_.piece(prompt, piece); };
    return {prompt, place, ids, TextStream(how_.stop, std::move(look)), {}};
  }

  bool ended(const Text& text) const { return text.made.end != End::length || text.made.drawn >= how_.tokens; }

  // One token more for each.
  void step(std::vector<Text>& texts) {
    std::vector<NextLogits::Asked> asked;
    for (const Text& text : texts)
      asked.push_back({text.place, std::span(text.ids).subspan(window_begin(text.ids.size(), window_))});
    const std::vector<std::vector<float>> logits = model_.after(asked);
    for (size_t i = 0; i < texts.size(); ++i) {
      Text& text = texts[i];
      const auto number = static_cast<uint64_t>(how_.first_draw + text.made.drawn++);
      const data::TokenId id =
          draw(candidates(logits[i], tokenizer_.vocabulary(), how_.sampling), random_.uniform(number));
      if (id == tokenizer_.end_of_text()) {
        text.made.end = End::end_of_text;
        continue;
      }
      text.ids.push_back(id);
      text.made.ids.push_back(id);
      if (text.stream.add(tokenizer_.decode({&id, 1}))) text.made.end = End::stop_word;
    }
  }

  void finish(Text& text) const {
    text.stream.end();
    text.made.text = text.stream.text();
    if (text.made.end == End::stop_word) cut_ids(tokenizer_, text.made);
    if (watch_.ended) watch_.ended(text.prompt, text.made);
  }

  NextLogits& model_;
  const data::Tokenizer& tokenizer_;
  const size_t window_;
  const Continuation& how_;
  const Watch& watch_;
  const RandomKey random_;
};

}  // namespace

std::vector<Continued> continue_texts(NextLogits& model, const data::Tokenizer& tokenizer, size_t window,
                                      std::span<const std::vector<data::TokenId>> prompts, size_t at_once,
                                      const Continuation& how, const Watch& watch) {
  HEDDLE_CHECK(window > 0 && at_once > 0, "a window of {} tokens, {} texts at once", window, at_once);
  return Texts(model, tokenizer, window, how, watch).run(prompts, at_once);
}

std::string continue_text(train::Trainer& trainer, const data::Tokenizer& tokenizer, std::string_view prompt,
                          const Continuation& how) {
  const std::vector<std::vector<data::TokenId>> prompts{prompt_ids(tokenizer, prompt)};
  const auto window = static_cast<size_t>(trainer.options().plan.sequence_length);
  return continue_texts(*logits_anew(trainer), tokenizer, window, prompts, 1, how)[0].text;
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
