#include "heddle/data/samples/sample_texts.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

namespace {

using Json = ChatTemplate::Json;

constexpr int kMostDepth = 64;

Json parsed(const Document& line) {
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) config_error("{}:{}: nested more than {} deep", line.source, line.line, kMostDepth);
    return true;
  };
  try {
    return Json::parse(line.text.begin(), line.text.end(), watch);
  } catch (const Json::exception&) {
    config_error("{}:{}: not a JSON object", line.source, line.line);
  }
}

const Json* member(const Json& object, const std::string& key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

bool are_messages(const Json* json) {
  return json != nullptr && json->is_array() && !json->empty() &&
         std::all_of(json->begin(), json->end(),
                     [](const Json& m) { return m.is_object() && m.contains("role") && m["role"].is_string(); });
}

std::string keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() < 6) keys.push_back(fmt::format("\"{}\"", escaped(key, 40)));
  }
  return keys.empty() ? "no keys" : fmt::format("{}", fmt::join(keys, ", "));
}

bool are_texts(std::initializer_list<const Json*> all) {
  return std::all_of(all.begin(), all.end(), [](const Json* json) { return json != nullptr && json->is_string(); });
}

// A prompt and its answer, as they are.
SampleText answered(const Json& prompt, const Json& answer) {
  SampleText sample;
  sample.text = prompt.get<std::string>();
  const size_t begin = sample.text.size();
  sample.text += answer.get<std::string>();
  if (sample.text.size() > begin) sample.targets.emplace_back(begin, sample.text.size());
  return sample;
}

Json joined(Json messages, const Json& more) {
  for (const Json& message : more) messages.push_back(message);
  return messages;
}

float weight_of(const Json& object, const std::string& key) {
  const Json* const given = member(object, key);
  if (given == nullptr) return 1;
  const double weight = given->is_number() ? given->get<double>() : -1;
  if (!(weight >= 0 && weight <= static_cast<double>(kMostWeight)))
    config_error("\"{}\" is {}, a number from 0 to {} is expected", escaped(key, 40), escaped(given->dump(), 40),
                 kMostWeight);
  return static_cast<float>(weight);
}

}  // namespace

std::vector<SampleText> SampleTexts::of(const Document& line) const {
  try {
    return read(line);
  } catch (const ConfigError& error) {
    const std::string place = fmt::format("{}:{}: ", line.source, line.line);
    if (std::string_view(error.what()).starts_with(place)) throw;
    config_error("{}{}", place, error.what());
  }
}

SampleText SampleTexts::conversation(const Json& messages, size_t first, const Json* tools) const {
  if (!chat_) {
    config_error(
        "a conversation, and no template to write it by: none stands beside the tokenizer (chat_template.jinja, "
        "tokenizer_config.json) and none is told (--chat-template, data.chat_template)");
  }
  SampleText sample;
  static_cast<SpannedText&>(sample) = chat_->conversation(messages, first, tools == nullptr ? Json() : *tools);
  sample.conversation = true;
  return sample;
}

std::vector<SampleText> SampleTexts::read(const Document& line) const {
  const Json object = parsed(line);
  if (keys_.pairs) return pair_of(object);
  const Json *prompt = member(object, keys_.prompt), *answer = member(object, keys_.answer),
             *messages = member(object, keys_.messages), *tools = member(object, "tools");
  SampleText sample;
  if (are_texts({prompt, answer})) {
    sample = answered(*prompt, *answer);
  } else if (are_messages(messages)) {
    sample = conversation(*messages, 0, tools);
  } else if (are_messages(prompt) && are_messages(answer)) {
    sample = conversation(joined(*prompt, *answer), prompt->size(), tools);
  } else {
    config_error(
        "no sample: accepted are \"{}\" with \"{}\", two texts or two lists of messages, and \"{}\", a list of "
        "{{\"role\": …, \"content\": …}}; there are {}",
        escaped(keys_.prompt, 40), escaped(keys_.answer, 40), escaped(keys_.messages, 40), keys_of(object));
  }
  if (!keys_.weight.empty()) sample.weight = weight_of(object, keys_.weight);
  return {sample};
}

std::vector<SampleText> SampleTexts::pair_of(const Json& object) const {
  const Json *prompt = member(object, keys_.prompt), *tools = member(object, "tools");
  const Json* const answers[] = {member(object, keys_.chosen), member(object, keys_.rejected)};
  std::vector<SampleText> pair;
  if (are_texts({prompt, answers[0], answers[1]})) {
    for (const Json* answer : answers) pair.push_back(answered(*prompt, *answer));
  } else if (are_messages(answers[0]) && are_messages(answers[1]) && (prompt == nullptr || are_messages(prompt))) {
    const Json before = prompt == nullptr ? Json::array() : *prompt;
    size_t shared = 0;
    const size_t least = std::min(answers[0]->size(), answers[1]->size());
    while (prompt == nullptr && shared + 1 < least && (*answers[0])[shared] == (*answers[1])[shared]) ++shared;
    for (const Json* answer : answers)
      pair.push_back(conversation(joined(before, *answer), before.size() + shared, tools));
  } else {
    config_error(
        "no pair: accepted are \"{}\" and \"{}\", two texts or two lists of {{\"role\": …, \"content\": …}}, "
        "behind "
        "a \"{}\" of their kind, which messages may do without; there are {}",
        escaped(keys_.chosen, 40), escaped(keys_.rejected, 40), escaped(keys_.prompt, 40), keys_of(object));
  }
  return pair;
}

uint64_t SampleTexts::hash() const {
  uint64_t hash = chat_ ? chat_->hash() : 0;
  for (const std::string* key : {&keys_.prompt, &keys_.answer, &keys_.messages}) hash = hash_bytes(*key, hash);
  if (!keys_.weight.empty()) hash = hash_bytes("weight " + keys_.weight, hash);
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
  // Ids that the text up to a place has too, from the beginning on.
  const auto ids_to = [&](size_t place) {
    if (place == sample.text.size()) return ids.size();
    const std::vector<TokenId> some = encoder.encode(std::string_view(sample.text).substr(0, place), added);
    return static_cast<size_t>(std::mismatch(some.begin(), some.end(), ids.begin(), ids.end()).first -
                               some.begin());
  };
  for (const auto& [begin, end] : sample.targets) {
    const size_t first = before + ids_to(begin), last = before + ids_to(end);
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
