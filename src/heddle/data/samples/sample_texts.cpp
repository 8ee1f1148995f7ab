#include "heddle/data/samples/sample_texts.h"

#include <algorithm>
#include <cctype>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/data/chat/answers.h"
#include "heddle/data/token_file.h"
#include "heddle/formats/python_json.h"

namespace heddle::data {

namespace {

using Json = ChatTemplate::Json;

constexpr const char *kPreferred = "preferred_output", *kNotPreferred = "non_preferred_output",
                     *kRejectedAnswer = "rejected_response";

Json parsed(const Document& line) {
  try {
    Json object = formats::parse_python_json(line.text, {.any_bytes = true});
    if (object.is_object()) return object;
  } catch (const ConfigError& error) {
    config_error("not a JSON object: {}", error.what());
  }
  config_error("not a JSON object");
}

std::string keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() < 8) keys.push_back(fmt::format("\"{}\"", escaped(key, 40)));
  }
  return keys.empty() ? "no keys" : fmt::format("{}", fmt::join(keys, ", "));
}

bool is_text(const Json* json) { return json != nullptr && json->is_string(); }
bool is_talk(const Json* json) { return json != nullptr && are_turns(*json); }

// A prompt and its answer, as they are.
SampleText answered(std::string prompt, const std::string& answer) {
  SampleText sample;
  const size_t begin = prompt.size();
  sample.text = std::move(prompt) + answer;
  if (sample.text.size() > begin) sample.targets.emplace_back(begin, sample.text.size());
  return sample;
}

float weight_of(Fields& fields, const std::string& key) {
  const Json* const given = fields.read(key);
  if (given == nullptr) return 1;
  const double weight = given->is_number() ? given->get<double>() : -1;
  if (!(weight >= 0 && weight <= static_cast<double>(kMostWeight)))
    config_error("\"{}\" is {}, a number from 0 to {} is expected", escaped(key, 40), escaped(given->dump(), 40),
                 kMostWeight);
  return static_cast<float>(weight);
}

// A label says which answers are wanted, which is neither a sample nor a pair.
void refuse_label(const Fields& fields, bool pairs, bool answers) {
  const Json* label = fields.look("label");
  if (label == nullptr) return;
  const bool number = (pairs || answers) && (*label == 0 || *label == 1);
  if (!label->is_boolean() && !number) return;
  const bool wanted = label->is_boolean() ? label->get<bool>() : *label == 1;
  if (pairs && wanted) return;
  if (pairs)
    config_error(
        "\"label\" is {}: it says that the chosen answer is not the preferred one; change them, or leave it out",
        label->dump());
  config_error(
      "\"label\" is {}: answers that are each wanted or not (TRL's unpaired preference, KTO) are not learnt from; "
      "keep the lines whose label is true, without the label, or make pairs of them",
      label->dump());
}

// The prompt of two texts that begin alike. For Anthropic's conversations it goes up to the last turn of the
// assistant, or else as far as they are equal, to the end of a word.
size_t shared_prompt(const std::string& a, const std::string& b) {
  constexpr std::string_view kTurn = "\n\nAssistant:";
  size_t same = common_bytes(a, b);
  const size_t turn = a.rfind(kTurn, same);
  if (turn != std::string::npos && turn + kTurn.size() <= same) return turn + kTurn.size();
  const auto in_word = [](const std::string& text, size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  while (same > 0 && in_word(a, same - 1) && (in_word(a, same) || in_word(b, same))) --same;
  if (same > 0 && a[same - 1] == ' ') --same;  // it begins the answer's first word
  return same;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlankBytes);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlankBytes) + 1 - first);
}

bool says(const Json& message, const std::string& text) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() &&
         trimmed(content->get_ref<const std::string&>()) == trimmed(text);
}

// Alpaca's, or ms-swift's; "" without either.
std::string instruction_key(const Fields& fields) {
  for (const char* key : {"instruction", "query"}) {
    if (is_text(fields.look(key))) return key;
  }
  return "";
}

// The value that a text of JSON holds, as tables keep lists; null for another text.
Json json_in(const std::string& text) {
  try {
    return formats::parse_python_json(text);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

bool role_is(const Json& message, std::string_view role) { return message["role"] == role; }

// The tool calls' arguments as objects, where they are JSON texts; false where none is.
bool parse_arguments(Json& messages) {
  bool changed = false;
  for (Json& message : messages) {
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      Json* const function = call.is_object() && call.contains("function") ? &call["function"] : &call;
      if (!function->is_object() || !function->contains("arguments")) continue;
      Json& arguments = (*function)["arguments"];
      if (!arguments.is_string()) continue;
      try {
        Json object = formats::parse_python_json(arguments.get_ref<const std::string&>());
        if (!object.is_object()) continue;
        arguments = std::move(object);
        changed = true;
      } catch (const ConfigError&) {
        continue;
      }
    }
  }
  return changed;
}

}  // namespace

std::vector<SampleText> SampleTexts::of(const Document& line, SampleNotes* notes) const {
  try {
    const Json object = parsed(line);
    Fields fields(object);
    refuse_label(fields, keys_.pairs, fields.look(keys_.answer) != nullptr);
    std::vector<SampleText> samples;
    if (keys_.pairs) {
      samples = pair_of(fields);
      // Two equal answers prefer nothing.
      if (samples[0].text == samples[1].text) samples[0].targets.clear();
    } else {
      samples = {sample_of(fields)};
      if (!keys_.weight.empty()) samples[0].weight = weight_of(fields, keys_.weight);
    }
    if (notes != nullptr) {
      SampleNotes::add(fields.not_read(), notes->fields);
      for (const SampleText& sample : samples) {
        SampleNotes::add(sample.not_written, notes->fields);
        SampleNotes::add(sample.speakers, notes->speakers);
      }
    }
    return samples;
  } catch (const ConfigError& error) {
    config_error("{}:{}: {}", line.source, line.line, error.what());
  }
}

Turns SampleTexts::turns(const Json& json, const std::string& key) const {
  return read_turns(json, key, chat_ ? chat_->marks().takes_parts : std::vector<std::string>());
}

SampleTexts::Beside SampleTexts::beside(Fields& fields) const {
  Beside made;
  if (const Json* tools = fields.read("tools")) made.tools = read_tools(*tools, "tools", false);
  if (const Json* functions = fields.look("functions"); functions != nullptr && made.tools.is_null()) {
    fields.read("functions");
    made.tools = read_tools(*functions, "functions", true);
  }
  if (const Json* told = fields.read("chat_template_kwargs")) {
    made.arguments = *told;
    if (told->is_string()) made.arguments = formats::parse_python_json(told->get_ref<const std::string&>());
    if (!made.arguments.is_object()) config_error("\"chat_template_kwargs\" is no object");
  }
  if (is_text(fields.look("system"))) made.system = fields.read("system")->get<std::string>();
  return made;
}

// Fields that the template never names, and so does not write.
std::vector<std::string> SampleTexts::not_written(const Json& messages, const Beside& beside) const {
  static const std::set<std::string> kUsual{"role", "content", "name", "id", "tool_call_id"};
  std::vector<std::string> found;
  const std::string& text = chat_->of(beside.tools).files().text;
  const auto named = [&](std::string_view key) { return text.find(key) != std::string::npos; };
  const bool thoughts = std::any_of(std::begin(kThoughts), std::end(kThoughts), named);
  for (const Json& message : messages) {
    for (const auto& [key, value] : message.items()) {
      const bool written =
          std::find(std::begin(kThoughts), std::end(kThoughts), key) == std::end(kThoughts) ? named(key) : thoughts;
      if (!value.is_null() && !kUsual.contains(key) && !written) found.push_back(keys_.messages + "[]." + key);
    }
  }
  if (!beside.tools.is_null() && !named("tools")) found.emplace_back("tools");
  return found;
}

SampleText SampleTexts::conversation(Turns turns, size_t first, const Beside& beside) const {
  if (!chat_) {
    config_error(
        "a conversation, and no template to write it by: none is beside the tokenizer (chat_template.jinja, "
        "tokenizer_config.json) and none is given (--chat-template, data.chat_template)");
  }
  if (!beside.system.empty()) {
    const bool has = role_is(turns.messages[0], "system");
    if (has && !says(turns.messages[0], beside.system))
      config_error("\"system\" says something else than the conversation's own first message");
    if (!has) {
      Turns all;
      all.add("system", beside.system);
      all.add(turns);
      turns = std::move(all);
      ++first;
    }
  }
  ChatTemplate::Talk talk{.messages = std::move(turns.messages),
                          .first = first,
                          .tools = beside.tools,
                          .arguments = beside.arguments,
                          .silent = {},
                          .last_only = keys_.last_answer_only};
  if (turns.any_silent()) talk.silent = std::move(turns.silent);
  SampleText sample;
  sample.conversation = true;
  sample.not_written = not_written(talk.messages, beside);
  for (const Json& message : talk.messages) sample.speakers.push_back(message["role"].get<std::string>());
  if (std::find(sample.speakers.begin(), sample.speakers.end(), "assistant") != sample.speakers.end())
    sample.speakers.clear();
  try {
    static_cast<SpannedText&>(sample) = chat_->conversation(talk);
  } catch (const ConfigError&) {
    // Some templates take the arguments of calls as objects alone, and OpenAI's are JSON texts.
    if (!parse_arguments(talk.messages)) throw;
    static_cast<SpannedText&>(sample) = chat_->conversation(talk);
  }
  return sample;
}

// Alpaca's: an instruction, what it is about, and its answer; before it what was said already.
std::optional<SampleTexts::Instruction> SampleTexts::instruction(Fields& fields) const {
  const std::string key = instruction_key(fields);
  if (key.empty()) return std::nullopt;
  Instruction made;
  made.asked = fields.read(key)->get<std::string>();
  for (const char* key : {"input", "context"}) {
    if (!made.about.empty() || fields.look(key) == nullptr) continue;
    const Json* about = fields.read(key);
    if (!about->is_string()) config_error("\"{}\" is no text", key);
    made.about = about->get<std::string>();
  }
  if (const Json* history = fields.read("history")) {
    for (const Json& each : *history) {
      if (!each.is_array() || each.size() != 2 || !each[0].is_string() || !each[1].is_string())
        config_error("\"history\": {}, a list of [question, answer] is expected", escaped(each.dump(), 60));
      made.before.add("user", each[0]);
      made.before.add("assistant", each[1]);
    }
  }
  made.beside = beside(fields);
  return made;
}

// By the template, or without one in the words that Alpaca has for it.
SampleText SampleTexts::instructed(const Instruction& about, const std::string& answer) const {
  if (chat_) {
    Turns turns = about.before;
    turns.add("user", about.about.empty() ? about.asked : about.asked + "\n" + about.about);
    turns.add("assistant", answer);
    const size_t last = turns.size() - 1;
    return conversation(std::move(turns), keys_.pairs ? last : 0, about.beside);
  }
  if (about.before.size() > 0 || !about.beside.system.empty())
    config_error(
        "\"history\" and \"system\" of an instruction need a chat template (--chat-template, data.chat_template)");
  const bool alone = about.about.empty();
  return answered(fmt::format("Below is an instruction that describes a task{}. Write a response that "
                              "appropriately completes the request.\n\n### Instruction:\n{}\n\n{}### Response:\n",
                              alone ? "" : ", paired with an input that provides further context", about.asked,
                              alone ? "" : fmt::format("### Input:\n{}\n\n", about.about)),
                  answer);
}

// Messages under their key, or ShareGPT's.
std::optional<Turns> SampleTexts::conversation_in(Fields& fields) const {
  std::vector<std::string> names{keys_.messages};
  if (keys_.messages == SampleKeys().messages) names.emplace_back("conversations");
  for (const std::string& name : names) {
    const Json* found = fields.look(name);
    const Json list = is_text(found) ? json_in(found->get_ref<const std::string&>()) : Json();
    if (!is_talk(found) && !are_turns(list)) continue;
    fields.read(name);
    return turns(list.is_null() ? *found : list, name);
  }
  return std::nullopt;
}

SampleText SampleTexts::sample_of(Fields& fields) const {
  const Json *prompt = fields.look(keys_.prompt), *answer = fields.look(keys_.answer);
  if (is_text(prompt) && is_text(answer)) {
    fields.read(keys_.prompt);
    fields.read(keys_.answer);
    return answered(prompt->get<std::string>(), answer->get_ref<const std::string&>());
  }
  if (std::optional<Turns> talk = conversation_in(fields)) return conversation(std::move(*talk), 0, beside(fields));
  const bool asked = is_text(prompt) || is_talk(prompt), said = is_text(answer) || is_talk(answer);
  if (asked && said) {
    fields.read(keys_.prompt);
    fields.read(keys_.answer);
    Turns talk;
    if (is_text(prompt)) talk.add("user", *prompt);
    if (is_talk(prompt)) talk = turns(*prompt, keys_.prompt);
    const size_t first = talk.size();
    if (is_text(answer)) talk.add("assistant", *answer);
    if (is_talk(answer)) talk.add(turns(*answer, keys_.answer));
    return conversation(std::move(talk), first, beside(fields));
  }
  for (const char* key : {"output", "response"}) {
    if (!is_text(fields.look(key)) || instruction_key(fields).empty()) continue;
    const std::string& said_last = fields.read(key)->get_ref<const std::string&>();
    return instructed(*instruction(fields), said_last);
  }
  const bool other = fields.look(keys_.chosen) != nullptr && fields.look(keys_.rejected) != nullptr;
  if (!other && prompt == nullptr && answer == nullptr && is_text(fields.look("text")))
    return answered("", fields.read("text")->get_ref<const std::string&>());
  config_error(
      "no sample: accepted are \"{}\" with \"{}\", texts or lists of messages, \"{}\" or \"conversations\", a list "
      "of {{\"role\": …, \"content\": …}} or {{\"from\": …, \"value\": …}}, \"instruction\" with \"output\", and "
      "\"text\"; there are {}{}",
      escaped(keys_.prompt, 40), escaped(keys_.answer, 40), escaped(keys_.messages, 40), keys_of(fields.object()),
      other ? " (pairs of answers: --pairs, train.objective = \"dpo\")" : "");
}

// OpenAI's pair: answers to the messages of "input".
std::vector<SampleText> SampleTexts::preferred(Fields& fields) const {
  Fields input(*fields.read("input"));
  std::optional<Turns> before = conversation_in(input);
  if (!before) config_error("\"input\" has no \"{}\"", escaped(keys_.messages, 40));
  const Beside more = beside(input);
  std::vector<SampleText> pair;
  for (const char* key : {kPreferred, kNotPreferred}) {
    const Json* answer = fields.read(key);
    if (!is_talk(answer)) config_error("\"{}\" is no list of messages", key);
    Turns talk = *before;
    talk.add(turns(*answer, key));
    pair.push_back(conversation(std::move(talk), before->size(), more));
  }
  return pair;
}

// ms-swift's pair: the last answer, and what is rejected in its place.
std::vector<SampleText> SampleTexts::with_rejected(Fields& fields, const std::string& rejected) const {
  std::optional<Turns> talk = conversation_in(fields);
  if (!talk) {
    const std::optional<Instruction> asked = instruction(fields);
    const Json* answer = fields.read("response");
    if (!asked || !is_text(answer))
      config_error("\"{}\" needs messages, or a \"query\" and its \"response\"", kRejectedAnswer);
    return {instructed(*asked, answer->get<std::string>()), instructed(*asked, rejected)};
  }
  if (talk->size() == 0 || !role_is(talk->messages.back(), "assistant"))
    config_error("\"{}\": the messages end with no answer", kRejectedAnswer);
  Turns other = *talk;
  other.messages.back() = {{"role", "assistant"}, {"content", rejected}};
  const Beside more = beside(fields);
  const size_t last = talk->size() - 1;
  return {conversation(std::move(*talk), last, more), conversation(std::move(other), last, more)};
}

std::vector<SampleText> SampleTexts::pair_of(Fields& fields) const {
  const Json *chosen = fields.read(keys_.chosen), *rejected = fields.read(keys_.rejected);
  if (chosen == nullptr && rejected == nullptr) {
    const Json* input = fields.look("input");
    if (input != nullptr && input->is_object() && fields.look(kPreferred) != nullptr &&
        fields.look(kNotPreferred) != nullptr)
      return preferred(fields);
    if (is_text(fields.look(kRejectedAnswer)))
      return with_rejected(fields, fields.read(kRejectedAnswer)->get<std::string>());
  }
  if (is_text(chosen) && is_text(rejected)) return pair_of_texts(fields, *chosen, *rejected);
  if (is_talk(chosen) && is_talk(rejected)) return pair_of_turns(fields, *chosen, *rejected);
  config_error(
      "no pair: accepted are \"{}\" and \"{}\", two texts or two lists of {{\"role\": …, \"content\": …}}, with or "
      "without a \"{}\"; there are {}",
      escaped(keys_.chosen, 40), escaped(keys_.rejected, 40), escaped(keys_.prompt, 40), keys_of(fields.object()));
}

std::vector<SampleText> SampleTexts::pair_of_texts(Fields& fields, const Json& chosen, const Json& rejected) const {
  const Json* prompt = fields.look(keys_.prompt);
  std::vector<SampleText> pair;
  const auto each = [&](const auto& make) {
    for (const Json* answer : {&chosen, &rejected}) pair.push_back(make(*answer));
    return pair;
  };
  if (is_text(prompt)) {
    fields.read(keys_.prompt);
    return each([&](const Json& answer) {
      return answered(prompt->get<std::string>(), answer.get_ref<const std::string&>());
    });
  }
  std::optional<Turns> before;
  if (is_talk(prompt)) {
    before = turns(*fields.read(keys_.prompt), keys_.prompt);
  } else if (prompt == nullptr) {
    before = conversation_in(fields);
  } else {
    config_error("\"{}\" is neither a text nor a list of messages", escaped(keys_.prompt, 40));
  }
  if (before) {
    const Beside more = beside(fields);
    return each([&](const Json& answer) {
      Turns talk = *before;
      talk.add("assistant", answer);
      return conversation(std::move(talk), before->size(), more);
    });
  }
  if (const std::optional<Instruction> asked = instruction(fields))
    return each([&](const Json& answer) { return instructed(*asked, answer.get_ref<const std::string&>()); });
  const std::string &one = chosen.get_ref<const std::string&>(), &other = rejected.get_ref<const std::string&>();
  const size_t shared = one == other ? one.size() : shared_prompt(one, other);
  return each([&](const Json& answer) {
    const std::string& whole = answer.get_ref<const std::string&>();
    return answered(whole.substr(0, shared), whole.substr(shared));
  });
}

std::vector<SampleText> SampleTexts::pair_of_turns(Fields& fields, const Json& chosen, const Json& rejected) const {
  const Json* prompt = fields.look(keys_.prompt);
  const Turns answers[] = {turns(chosen, keys_.chosen), turns(rejected, keys_.rejected)};
  const size_t least = std::min(answers[0].size(), answers[1].size());
  size_t shared = 0;
  while (shared + 1 < least && answers[0].messages[shared] == answers[1].messages[shared]) ++shared;
  Turns before;
  if (is_talk(prompt)) {
    before = turns(*fields.read(keys_.prompt), keys_.prompt);
    // The conversations may hold it already.
    const bool held = before.size() <= shared &&
                      std::equal(before.messages.begin(), before.messages.end(), answers[0].messages.begin());
    if (held) before = {};
    if (!held) shared = 0;
  } else if (is_text(prompt)) {
    const std::string& text = prompt->get_ref<const std::string&>();
    const auto& messages = answers[0].messages;
    const auto behind = messages.begin() + static_cast<ptrdiff_t>(shared);
    if (role_is(messages[0], "assistant") && role_is(answers[1].messages[0], "assistant")) {
      fields.read(keys_.prompt);
      before.add("user", text);
      shared = 0;
    } else if (std::any_of(messages.begin(), behind, [&](const Json& message) { return says(message, text); })) {
      fields.read(keys_.prompt);
    }
  } else if (prompt == nullptr) {
    const bool alone = role_is(answers[0].messages[0], "assistant") && role_is(answers[1].messages[0], "assistant");
    if (std::optional<Turns> talk = alone ? conversation_in(fields) : std::nullopt) {
      before = std::move(*talk);
      shared = 0;
    }
  } else {
    config_error("\"{}\" is neither a text nor a list of messages", escaped(keys_.prompt, 40));
  }
  const Beside more = beside(fields);
  std::vector<SampleText> pair;
  for (const Turns& answer : answers) {
    Turns talk = before;
    talk.add(answer);
    pair.push_back(conversation(std::move(talk), before.size() + shared, more));
  }
  return pair;
}

uint64_t SampleTexts::hash() const {
  uint64_t hash = chat_ ? chat_->hash() : 0;
  for (const std::string* key : {&keys_.prompt, &keys_.answer, &keys_.messages}) hash = hash_bytes(*key, hash);
  if (!keys_.weight.empty()) hash = hash_bytes("weight " + keys_.weight, hash);
  if (keys_.last_answer_only) hash = hash_bytes("last answer only", hash);
  if (keys_.pairs) hash = hash_bytes(fmt::format("pairs {} {}", keys_.chosen, keys_.rejected), hash);
  return hash;
}

EncodedSample encode(const SampleText& sample, const Tokenizer& tokenizer, Encoder& encoder) {
  const AddedTokens added = sample.conversation ? AddedTokens::parse : AddedTokens::plain;
  EncodedSample made;
  if (!sample.conversation) made.ids = tokenizer.spec().before;
  const size_t before = made.ids.size();
  const std::vector<TokenId> ids = encoder.encode(sample.text, added);
  made.ids.insert(made.ids.end(), ids.begin(), ids.end());
  made.weights.assign(made.ids.size(), 0.0F);
  // Ids that the text up to a place has too, from the beginning on; and one that reaches across it, where asked
  // for.
  const auto ids_to = [&](size_t place, bool across) {
    if (place == sample.text.size()) return ids.size();
    const std::vector<TokenId> some = encoder.encode(std::string_view(sample.text).substr(0, place), added);
    const auto same = std::mismatch(some.begin(), some.end(), ids.begin(), ids.end());
    return static_cast<size_t>(same.first - some.begin()) +
           (across && same.first != some.end() && same.second != ids.end());
  };
  for (const auto& [begin, end] : sample.targets) {
    const size_t first = before + ids_to(begin, false), last = before + ids_to(end, true);
    if (first < last)
      std::fill(made.weights.begin() + static_cast<ptrdiff_t>(first),
                made.weights.begin() + static_cast<ptrdiff_t>(last), sample.weight);
  }
  if (!sample.conversation && tokenizer.end_of_text() >= 0) {
    made.ids.push_back(tokenizer.end_of_text());
    made.weights.push_back(sample.targets.empty() ? 0 : sample.weight);
  }
  return made;
}

}  // namespace heddle::data
