// The template of conversations, as released models carry it: Jinja text in chat_template.jinja or under
// "chat_template" of tokenizer_config.json, with the special tokens that it names.
//
// Rendered as Transformers does: trim_blocks and lstrip_blocks, {% generation %}, raise_exception; with `messages`,
// `tools`, `add_generation_prompt`, the special tokens and further arguments. One difference: strftime_now returns
// a fixed day, so that the same conversation is the same text on every day.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/machine.h"
#include "jinja/syntax.h"

namespace heddle::data {

/// The names under which a message holds thoughts; templates read the first of them, and "thinking".
inline constexpr const char* kThoughts[] = {"reasoning_content", "thinking", "reasoning"};

/// A text and the bytes of it that are to be learnt.
struct SpannedText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> targets;  // [begin, end), in order
  int64_t left_out = 0;                            // answers that should be, and cannot be told apart
  int64_t unwritten = 0;                           // messages of whose content the template writes nothing
};

/// Behaviour of a template, found by having it write some conversations.
struct TurnMarks {
  bool closes_turns = true;  // an answer ends with a mark of its own; otherwise the next turn's mark ends it
  bool closes_last = true;   // likewise the last answer
  std::string answer;        // the beginning of an answer
  /// The end of an answer that a user's turn follows, and of one that calls tools. It is the first mark behind its
  /// turn where that does not close itself, else the turn's own; "" where nothing is known.
  std::string end, end_of_calls;
  bool opens_turns = true;               // a mark stands before the next turn's content: not only blanks
  std::vector<std::string> takes_parts;  // roles whose content may be a list of parts
};

class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;
  struct Files {
    std::string text;
    std::string for_tools;                                    // for conversations with tools; "": the same
    std::vector<std::pair<std::string, std::string>> tokens;  // "bos_token" and kin with their texts
    Json arguments = Json::object();                          // further arguments: enable_thinking, …
    std::string day;  // returned by strftime_now, which is then defined; "": kChatDate where it is called unasked
  };
  struct Talk {
    Json messages;
    size_t first = 0;  // the first message that may be learnt
    Json tools = nullptr;
    Json arguments = nullptr;  // over those of Files
    std::vector<bool> silent;  // empty, or of each message: its answer is no target
    bool last_only = false;    // only the last answer is
  };

  /// `place` is what messages call it. ConfigError for what is no template of the subset.
  ChatTemplate(Files files, std::string place);

  /// ConfigError "place:line: …" when it refuses or goes beyond its bounds.
  std::string render(const Json& messages, bool generation_prompt, const Json& tools = nullptr) const;

  /// A whole conversation. Targets are what {% generation %} stands around. Without that they are what the template
  /// writes of each answer of the assistant, less its beginning, and with its end. Where the template closes no
  /// turn, the end is the next turn's mark, which is put behind the last answer too.
  SpannedText conversation(const Talk& talk) const;

  /// Worked out once.
  const TurnMarks& marks() const;

  const Files& files() const { return files_; }
  /// The day given to it; "" where it asks for none, or takes one of its own.
  std::string day() const;
  const std::string& place() const { return place_; }
  uint64_t hash() const;
  /// The template that writes a conversation with these tools, or null: itself, or its counterpart for tools.
  const ChatTemplate& of(const Json& tools) const;

 private:
  using Rendered = jinja::Machine::Rendered;
  struct Lazy;

  Rendered run(const Json& messages, bool generation_prompt, const Json& tools, const Json& more = nullptr) const;
  TurnMarks find_marks() const;
  /// `written`: the text before the answer.
  std::string beginning_of_answer(const Talk& talk, size_t answer, std::string_view written) const;
  std::optional<std::pair<size_t, size_t>> by_its_beginning(const Talk& talk, size_t answer,
                                                            const std::string& whole) const;

  Files files_;
  std::string place_;
  jinja::Body body_;
  bool marks_answers_;
  std::shared_ptr<Lazy> lazy_;
  std::shared_ptr<const ChatTemplate> for_tools_;  // null: there is none
};

/// Loads a .jinja file, or a .json with the key "chat_template" (a text, or a list of named ones with "default").
/// One that is named "tool_use", or stands in additional_chat_templates/tool_use.jinja, writes what has tools.
ChatTemplate load_chat_template(const std::string& path);
/// The template that stands in a folder, or beside a file: chat_template.json (as kept here), chat_template.jinja,
/// tokenizer_config.json; its path, or "".
std::string chat_template_beside(const std::string& path);
/// A template's arguments as a user writes them: "enable_thinking=false effort=high", or a JSON object.
/// ConfigError, beginning with `place`.
ChatTemplate::Json parse_chat_arguments(const std::string& text, const std::string& place);
/// The template with other arguments and another day; empty: its own. ConfigError for what cannot be told.
ChatTemplate with_told(ChatTemplate chat, const std::string& arguments, const std::string& day);
/// The value of the key "chat_template": a text, or a list of named ones where there is one for tools.
ChatTemplate::Json templates_json(const ChatTemplate::Files& files);
/// Keeps one in a folder, with its arguments.
void keep_chat_template(const ChatTemplate& chat, const std::string& folder);

}  // namespace heddle::data
