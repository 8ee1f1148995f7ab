// The template that a conversation is written by, as released models carry it: text of Jinja's, in
// chat_template.jinja or under "chat_template" of tokenizer_config.json, with the special tokens that it names.
//
// Rendered as Transformers does: trim_blocks and lstrip_blocks, {% generation %}, raise_exception; with `messages`,
// `tools`, `add_generation_prompt` and the special tokens. What differs: there is no strftime_now, so that the same
// conversation is the same text on every day; templates ask whether it is defined.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/data/chat/syntax.h"

namespace heddle::data {

/// A text and the bytes of it that are to be learnt.
struct SpannedText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> targets;  // [begin, end), in order
  int64_t left_out = 0;                            // answers that should be, and cannot be told apart
};

class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;
  struct Files {
    std::string text;
    std::vector<std::pair<std::string, std::string>> tokens;  // "bos_token" and kin with their texts
  };

  /// `place` is what messages call it. ConfigError for what is no template of the subset.
  ChatTemplate(Files files, std::string place);

  /// ConfigError "place:line: …" when it refuses or goes beyond its bounds.
  std::string render(const Json& messages, bool generation_prompt, const Json& tools = nullptr) const;

  /// A whole conversation; targets are the answers of the assistant from message `first` on. They are what
  /// {% generation %} stands around; without that, of each answer what it adds to the text of the messages before
  /// it, less what begins an answer. An answer that the whole text has otherwise (some templates write earlier
  /// turns without their thoughts) is left out.
  SpannedText conversation(const Json& messages, size_t first = 0, const Json& tools = nullptr) const;

  /// What stands between an answer and the next turn.
  std::string between_turns() const;

  const Files& files() const { return files_; }
  uint64_t hash() const;

 private:
  SpannedText run(const Json& messages, bool generation_prompt, const Json& tools) const;

  Files files_;
  std::string place_;
  jinja::Body body_;
  bool marks_answers_;
};

/// From a .jinja file, or a .json with the key "chat_template" (a text, or a list of named ones with "default").
ChatTemplate load_chat_template(const std::string& path);
/// The template that stands in a folder, or beside a file: chat_template.json (as kept here), chat_template.jinja,
/// tokenizer_config.json; its path, or "".
std::string chat_template_beside(const std::string& path);
/// Keeps one in a folder.
void keep_chat_template(const ChatTemplate& chat, const std::string& folder);

}  // namespace heddle::data
