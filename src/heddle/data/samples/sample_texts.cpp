#include "heddle/data/samples/sample_texts.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"

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

}  // namespace

SampleText SampleTexts::of(const Document& line) const {
  try {
    return read(line);
  } catch (const ConfigError& error) {
    const std::string place = fmt::format("{}:{}: ", line.source, line.line);
    if (std::string_view(error.what()).starts_with(place)) throw;
    config_error("{}{}", place, error.what());
  }
}

SampleText SampleTexts::read(const Document& line) const {
  const Json object = parsed(line);
  const Json *prompt = member(object, keys_.prompt), *answer = member(object, keys_.answer),
             *messages = member(object, keys_.messages), *tools = member(object, "tools");
  SampleText sample;
  if (prompt != nullptr && answer != nullptr && prompt->is_string() && answer->is_string()) {
    sample.text = prompt->get<std::string>();
    const size_t begin = sample.text.size();
    sample.text += answer->get<std::string>();
    if (sample.text.size() > begin) sample.targets.emplace_back(begin, sample.text.size());
    return sample;
  }
  Json all;
  size_t first = 0;
  if (are_messages(messages)) {
    all = *messages;
  } else if (are_messages(prompt) && are_messages(answer)) {
    all = *prompt;
    first = all.size();
    for (const Json& message : *answer) all.push_back(message);
  } else {
    config_error(
        "no sample: accepted are \"{}\" with \"{}\", two texts or two lists of messages, and \"{}\", a list of "
        "{{\"role\": …, \"content\": …}}; there are {}",
        escaped(keys_.prompt, 40), escaped(keys_.answer, 40), escaped(keys_.messages, 40), keys_of(object));
  }
  if (!chat_) {
    config_error(
        "a conversation, and no template to write it by: none stands beside the tokenizer (chat_template.jinja, "
        "tokenizer_config.json) and none is told (--chat-template, data.chat_template)");
  }
  static_cast<SpannedText&>(sample) = chat_->conversation(all, first, tools == nullptr ? Json() : *tools);
  sample.conversation = true;
  return sample;
}

uint64_t SampleTexts::hash() const {
  uint64_t hash = chat_ ? chat_->hash() : 0;
  for (const std::string* key : {&keys_.prompt, &keys_.answer, &keys_.messages}) hash = hash_bytes(*key, hash);
  return hash;
}

EncodedSample encode(const SampleText& sample, const Tokenizer& tokenizer, Encoder& encoder) {
  const AddedTokens added = sample.conversation ? AddedTokens::parse : AddedTokens::plain;
  EncodedSample made;
  if (!sample.conversation) made.ids = tokenizer.spec().before;
  const size_t before = made.ids.size();
  const std::vector<TokenId> ids = encoder.encode(sample.text, added);
  made.ids.insert(made.ids.end(), ids.begin(), ids.end());
  made.weights.assign(made.ids.size(), 0);
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
                made.weights.begin() + static_cast<ptrdiff_t>(last), 1);
  }
  if (!sample.conversation && tokenizer.end_of_text() >= 0) {
    made.ids.push_back(tokenizer.end_of_text());
    made.weights.push_back(!sample.targets.empty());
  }
  return made;
}

}  // namespace heddle::data
