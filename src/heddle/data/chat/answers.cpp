// Finds the answers of a conversation in what its template writes.
//
// The machine notes which bytes each round of the template's loop writes for which message. So an answer is found
// in the text of the whole conversation, however the template writes it there: with its thoughts or without them,
// as a tool call. Templates that write messages in another way have their answers found by what each adds to the
// text of the messages before it.
#include "heddle/data/chat/answers.h"

#include <algorithm>
#include <array>

#include "heddle/base/error.h"
#include "heddle/data/chat/chat_template.h"

namespace heddle::data {

namespace {

using Json = ChatTemplate::Json;
using Written = jinja::Machine::Written;
using Span = std::pair<size_t, size_t>;

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlankBytes) == std::string_view::npos; }

bool has_role(const Json& message, std::string_view role) {
  if (!message.is_object()) return false;
  const auto at = message.find("role");
  return at != message.end() && at->is_string() && at->get_ref<const std::string&>() == role;
}

bool is_answer(const Json& message) { return has_role(message, "assistant"); }

bool calls_tools(const Json& message) {
  const auto at = message.find("tool_calls");
  return at != message.end() && at->is_array() && !at->empty();
}

Json part(const Json& messages, size_t count) {
  Json some = Json::array();
  for (size_t i = 0; i < count; ++i) some.push_back(messages[i]);
  return some;
}

// The text of a content, of its parts where it has some.
std::string content_of(const Json& message) {
  if (!message.is_object()) return "";
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string all;
  for (const Json& each : content->is_array() ? *content : Json::array()) {
    if (each.is_object() && each.contains("text") && each["text"].is_string())
      all += each["text"].get<std::string>();
  }
  return all;
}

// The last word of a text, of which a template leaves out thoughts and blanks.
std::string_view last_word(std::string_view text) {
  constexpr size_t kMostBytes = 32;
  const size_t end = text.find_last_not_of(kBlankBytes);
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const size_t begin = text.find_last_of(kBlankBytes);
  text.remove_prefix(begin == std::string_view::npos ? 0 : begin + 1);
  if (text.size() > kMostBytes) text.remove_prefix(text.size() - kMostBytes);
  return text;
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find_first_of(kBlankBytes)); }

// The spans that were written of each message, in the order of the text.
std::vector<std::vector<Span>> spans_of(const std::vector<Written>& written, size_t messages) {
  const bool own = std::any_of(written.begin(), written.end(), [](const Written& w) { return w.own; });
  std::vector<const Written*> kept;
  for (const Written& w : written) {
    if (w.own != own) continue;
    // A round ends behind the rounds within it: those are a part of it.
    while (!kept.empty() && kept.back()->begin >= w.begin) kept.pop_back();
    kept.push_back(&w);
  }
  std::vector<std::vector<Span>> spans(messages);
  for (const Written* w : kept) {
    if (w->item < messages) spans[w->item].emplace_back(w->begin, w->end);
  }
  return spans;
}

// Spans of an answer less the results of tools that its round writes too.
std::vector<Span> without_results(std::vector<Span> spans, const std::vector<Written>& written,
                                  const Json& messages, std::string_view text) {
  for (const Written& w : written) {
    const Json& message = messages[w.item];
    if (is_answer(message) || has_role(message, "user") || has_role(message, "system")) continue;
    const std::string content = content_of(message);
    if (text.substr(w.begin, w.end - w.begin).find(last_word(content)) == std::string_view::npos) continue;
    std::vector<Span> left;
    for (const Span& span : spans) {
      if (w.begin < span.first || w.end > span.second) {
        left.push_back(span);
        continue;
      }
      left.emplace_back(span.first, w.begin);
      left.emplace_back(w.end, span.second);
    }
    spans = std::move(left);
  }
  return spans;
}

// The end of a prompt, behind what the same messages are without one; those may end with a mark of their own.
std::string behind_what_both_have(const std::string& prompt, const std::string& said) {
  if (prompt.starts_with(said)) return prompt.substr(said.size());
  size_t same = common_bytes(prompt, said);
  const size_t opens = prompt.rfind('<', same), closes = prompt.rfind('>', same == 0 ? 0 : same - 1);
  if (opens != std::string::npos && (closes == std::string::npos || closes < opens)) same = std::min(same, opens);
  return prompt.substr(same);
}

Json said(std::string_view role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }

constexpr const char *kQuestion = "Qquestion0", *kAnswer = "Qanswer0", *kNext = "Qquestion1", *kTool = "Qtool0";

Json a_call() {
  Json call = said("assistant", "");
  call["tool_calls"] = Json::array({{{"id", "Qcall00000"},
                                     {"type", "function"},
                                     {"function", {{"name", "Qfunction"}, {"arguments", Json::object()}}}}});
  return call;
}

Json a_result() {
  Json result = said("tool", kTool);
  result["tool_call_id"] = "Qcall00000";
  result["name"] = "Qfunction";
  return result;
}

}  // namespace

std::string_view leading_mark(std::string_view text, size_t most) {
  const size_t begin = text.find_first_not_of(kBlankBytes);
  if (begin == std::string_view::npos) return {};
  const size_t blank = std::min(text.find_first_of(kBlankBytes, begin), text.size());
  for (const auto& [opens, closes] : {std::pair('<', '>'), std::pair('[', ']')}) {
    const size_t end = text[begin] == opens ? text.find(closes, begin) : std::string_view::npos;
    if (end < blank) return text.substr(0, end + 1);
  }
  return text.substr(0, most > begin ? std::min(blank, most) : blank);
}

size_t common_bytes(std::string_view a, std::string_view b) {
  auto at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (at > 0 && at < a.size() && (a[at] & 0xc0) == 0x80) --at;
  return at;
}

size_t beginning_bytes(std::string_view turn, std::string_view beginning, size_t most) {
  if (is_blank(beginning)) return turn.starts_with(beginning) ? beginning.size() : 0;
  const size_t first = std::min(turn.find_first_not_of(kBlankBytes), turn.size());
  const size_t opens = beginning.find_first_not_of(kBlankBytes);
  for (size_t at = 0; at < beginning.size(); ++at) {
    const bool may_begin = at == 0 || beginning[at] == '<' || beginning[at] == '[' ||
                           kBlankBytes.find(beginning[at - 1]) != std::string_view::npos;
    const std::string_view rest = beginning.substr(at);
    if (!may_begin || is_blank(rest)) continue;
    if (turn.starts_with(rest)) return rest.size();
    if (turn.substr(first).starts_with(rest)) return first + rest.size();
  }
  // Behind what the template writes ahead of a conversation's first turn.
  const std::string_view whole = beginning.substr(opens);
  const size_t inside = turn.find(whole);
  if (inside != std::string_view::npos && inside + whole.size() <= most) return inside + whole.size();
  // The turn parts from it: behind a mark or a blank; where that is within a tag, before the tag.
  const std::string_view own = turn.substr(first);
  size_t same = common_bytes(own, whole);
  const size_t tag = own.substr(0, same).rfind('<'), closes = own.substr(0, same).rfind('>');
  if (tag != std::string_view::npos && (closes == std::string_view::npos || closes < tag)) same = tag;
  constexpr std::string_view kEndsMark = ">]: \t\r\n\v\f";
  while (same > 0 && kEndsMark.find(own[same - 1]) == std::string_view::npos) --same;
  return same > 0 ? first + same : 0;
}

TurnMarks ChatTemplate::find_marks() const {
  TurnMarks found;
  const auto rendered = [&](const Json& messages, bool prompt = false) -> std::optional<Rendered> {
    // Some templates want a system's turn first, others refuse one.
    for (const bool system : {false, true}) {
      Json all = system ? Json::array({said("system", "Qsystem0")}) : Json::array();
      for (const Json& message : messages) all.push_back(message);
      try {
        Rendered made = run(all, prompt, nullptr);
        for (Written& w : made.written) w.item -= system && w.item > 0 ? 1 : 0;
        return made;
      } catch (const ConfigError&) {
        continue;
      }
    }
    return std::nullopt;
  };
  // The end of the turn of message 1, whose content ends at `behind`.
  const auto end_of_turn = [&](const Rendered& made, size_t behind) {
    size_t end = behind;
    for (const auto& [begin, until] : made.generated) {
      if (begin <= behind && until > end) end = until;
    }
    if (!made.generated.empty()) return end;
    const std::vector<std::vector<Span>> spans = spans_of(made.written, 3);
    for (const Span& span : spans[1]) {
      if (span.first <= behind && span.second > end) end = span.second;
    }
    return end;
  };
  const Json question = said("user", kQuestion), answer = said("assistant", kAnswer);
  if (const auto made = rendered(Json::array({question, answer, said("user", kNext)}))) {
    const std::string_view text = made->text;
    const size_t at = text.find(kAnswer), next = text.rfind(kNext);
    if (at != std::string_view::npos && next != std::string_view::npos && at < next) {
      const size_t behind = at + std::string_view(kAnswer).size();
      size_t end = end_of_turn(*made, behind);
      if (end == behind && made->written.empty() && made->generated.empty()) {
        // No turns were seen: an answer ends where the text does that has nothing behind it.
        const auto alone = rendered(Json::array({question, answer}));
        if (alone && text.starts_with(alone->text)) end = alone->text.size();
      }
      end = std::min(end, next);
      found.closes_turns = !is_blank(text.substr(behind, end - behind));
      // Blanks that the answer's own turn writes last are none of the next turn's mark.
      const size_t from = found.closes_turns ? behind : end;
      found.opens_turns = !is_blank(text.substr(from, next - from));
      if (found.opens_turns) found.end = leading_mark(text.substr(from), next - from);
    }
  }
  if (const auto made = rendered(Json::array({question, answer}))) {
    const std::string_view text = made->text;
    const size_t at = text.find(kAnswer);
    if (at != std::string_view::npos) {
      const size_t behind = at + std::string_view(kAnswer).size();
      const bool seen = !made->written.empty() || !made->generated.empty();
      const size_t end = seen ? end_of_turn(*made, behind) : text.size();
      found.closes_last = !is_blank(text.substr(behind, end - behind));
      if (!is_blank(text.substr(behind))) found.end = leading_mark(text.substr(behind));
    }
  }
  found.end_of_calls = found.end;
  if (!found.closes_turns) {
    if (const auto made = rendered(Json::array({question, a_call(), a_result()}))) {
      const std::vector<std::vector<Span>> spans = spans_of(made->written, 3);
      const size_t content = made->text.rfind(kTool);
      if (!spans[1].empty() && content != std::string::npos && content > spans[1].back().second) {
        const size_t end = spans[1].back().second;
        if (is_blank(std::string_view(made->text).substr(end, content - end)))
          found.end_of_calls.clear();
        else
          found.end_of_calls = leading_mark(std::string_view(made->text).substr(end), content - end);
      }
    }
  }
  const auto before = rendered(Json::array({question})), asked = rendered(Json::array({question}), true);
  if (before && asked) found.answer = behind_what_both_have(asked->text, before->text);
  const Json parts = Json::array({{{"type", "text"}, {"text", kTool}}});
  const std::array<std::pair<const char*, Json>, 4> talks{
      {{"user", Json::array({said("user", parts)})},
       {"assistant", Json::array({question, said("assistant", parts)})},
       {"system", Json::array({said("system", parts), question})},
       {"tool", Json::array({question, a_call(), a_result()})}}};
  for (auto [role, messages] : talks) {
    if (std::string_view(role) == "tool") messages.back()["content"] = parts;
    const auto made = rendered(messages);
    const size_t at = made ? made->text.find(kTool) : std::string::npos;
    // Not as a list is written that nobody looked into.
    if (at == std::string::npos || (at > 0 && (made->text[at - 1] == '\'' || made->text[at - 1] == '"'))) continue;
    found.takes_parts.emplace_back(role);
  }
  return found;
}

// The end of a prompt of the messages before an answer, for the answer to begin.
std::string ChatTemplate::beginning_of_answer(const Talk& talk, size_t answer, std::string_view written) const {
  const Json before = part(talk.messages, answer);
  try {
    const std::string prompt = run(before, true, talk.tools, talk.arguments).text;
    const std::string said = run(before, false, talk.tools, talk.arguments).text;
    // Some write a prompt's end in any case.
    if (prompt == said && prompt.starts_with(written)) return prompt.substr(written.size());
    return behind_what_both_have(prompt, said);
  } catch (const ConfigError&) {
    // It refuses a conversation that ends there.
  }
  return marks().answer;
}

std::optional<Span> ChatTemplate::by_its_beginning(const Talk& talk, size_t answer,
                                                   const std::string& whole) const {
  const Json before = part(talk.messages, answer);
  std::string prompt, said, with;
  try {
    prompt = run(before, true, talk.tools, talk.arguments).text;
    said = run(before, false, talk.tools, talk.arguments).text;
    with = answer + 1 == talk.messages.size()
               ? whole
               : run(part(talk.messages, answer + 1), false, talk.tools, talk.arguments).text;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  const size_t begin = common_bytes(prompt, with);
  if (!whole.starts_with(with) || !with.starts_with(said) || begin < said.size() || begin == with.size())
    return std::nullopt;
  return Span{begin, with.size()};
}

SpannedText ChatTemplate::conversation(const Talk& talk) const {
  if (&of(talk.tools) != this) return of(talk.tools).conversation(talk);
  const Json& messages = talk.messages;
  Rendered made = run(messages, false, talk.tools, talk.arguments);
  SpannedText whole{.text = std::move(made.text), .targets = {}, .left_out = 0, .unwritten = 0};
  const std::vector<std::vector<Span>> spans = spans_of(made.written, messages.size());
  for (const Json& message : messages) {
    const std::string content = content_of(message);
    const std::string_view word = last_word(content);
    const bool of_people = is_answer(message) || has_role(message, "user") || has_role(message, "system");
    whole.unwritten += of_people && !word.empty() && whole.text.find(word) == std::string::npos;
  }
  std::vector<size_t> answers;
  for (size_t i = talk.first; i < messages.size(); ++i) {
    if (is_answer(messages[i])) answers.push_back(i);
  }
  if (talk.last_only && answers.size() > 1) answers.erase(answers.begin(), answers.end() - 1);
  std::erase_if(answers, [&](size_t i) { return i < talk.silent.size() && talk.silent[i]; });

  if (marks_answers_ && !made.unplaced) {
    // Takes the marked parts of the turns that are to be learnt; all of it where turns are not seen.
    const bool seen = std::any_of(spans.begin(), spans.end(), [](const auto& own) { return !own.empty(); });
    const bool all = talk.first == 0 && !talk.last_only && talk.silent.empty();
    if (!seen && !all)
      config_error("{}: its marks of answers cannot be assigned to messages, so all of them are learnt or none",
                   place_);
    for (const Span& mark : made.generated) {
      const bool wanted = all || std::any_of(answers.begin(), answers.end(), [&](size_t i) {
                            return std::any_of(spans[i].begin(), spans[i].end(), [&](const Span& own) {
                              return own.first <= mark.first && mark.first < own.second;
                            });
                          });
      if (wanted && mark.second > mark.first) whole.targets.push_back(mark);
    }
    return whole;
  }

  std::optional<std::string> beginning;
  for (const size_t i : answers) {
    std::vector<Span> own = spans[i];
    if (own.empty()) {
      if (const auto found = by_its_beginning(talk, i, whole.text)) {
        own.push_back(*found);
      } else {
        ++whole.left_out;
        continue;
      }
    } else {
      const std::string_view text = whole.text;
      if (!beginning) {
        // Templates may end no prompt ahead of all messages.
        const auto later =
            std::find_if(answers.begin(), answers.end(), [&](size_t a) { return a > 0 && !spans[a].empty(); });
        beginning = later == answers.end()
                        ? marks().answer
                        : beginning_of_answer(talk, *later, text.substr(0, spans[*later].front().first));
      }
      const auto text_of = [&](const Span& span) {
        return std::string_view(whole.text).substr(span.first, span.second - span.first);
      };
      // A loop that only looks at the messages may write blanks.
      if (own.size() > 1) std::erase_if(own, [&](const Span& span) { return is_blank(text_of(span)); });
      const std::string content = content_of(messages[i]);
      const std::string_view word = first_word(content);
      for (Span& span : own) {
        const std::string_view turn = text_of(span);
        span.first += beginning_bytes(turn, *beginning, word.empty() ? turn.size() : turn.rfind(word));
      }
      own = without_results(own, made.written, messages, text);
    }
    std::erase_if(own, [](const Span& span) { return span.first >= span.second; });
    if (own.empty()) {
      ++whole.left_out;
      continue;
    }
    const bool last = i + 1 == messages.size();
    if (!(last ? marks().closes_last : marks().closes_turns)) {
      size_t& end = own.back().second;
      const std::string_view rest = std::string_view(whole.text).substr(end);
      if (!is_blank(rest) && (last || (marks().opens_turns && !is_answer(messages[i + 1])))) {
        const std::string content = last ? "" : content_of(messages[i + 1]);
        const std::string_view word = first_word(content);
        end += leading_mark(rest, word.empty() ? std::string::npos : rest.find(word)).size();
      } else if (is_blank(rest) && last) {
        const std::string& mark = calls_tools(messages[i]) ? marks().end_of_calls : marks().end;
        whole.text.resize(end);
        whole.text += mark;
        end = whole.text.size();
      }
    }
    whole.targets.insert(whole.targets.end(), own.begin(), own.end());
  }
  std::sort(whole.targets.begin(), whole.targets.end());
  return whole;
}

}  // namespace heddle::data
