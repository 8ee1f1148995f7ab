// JSON objects as samples to fine-tune on. A sample is a prompt with its answer, or a conversation.
//
//   {"prompt": "…", "completion": "…"}                              the answer and the end of the text are targets
//   {"messages": [{"role": "user", "content": "…"}, …]}             the assistant's turns are
//   {"conversations": [{"from": "human", "value": "…"}, …]}         likewise (ShareGPT)
//   {"prompt": [{…}, …], "completion": [{…}, …]}                    messages; the answers behind the prompt are
//   {"instruction": "…", "input": "…", "output": "…"}               turn and answer (Alpaca), after any "history";
//   {"query": "…", "response": "…"}                                 likewise (ms-swift)
//   {"text": "…"}                                                   all of it is a target
//
// or as a pair of answers, of which the first is preferred:
//
//   {"prompt": "…", "chosen": "…", "rejected": "…"}                 texts
//   {"prompt": [{…}, …], "chosen": [{…}, …], "rejected": [{…}, …]}  messages behind those of the prompt
//   {"chosen": …, "rejected": …}                                    two texts or conversations; their shared
//                                                                   beginning is the prompt, whatever "prompt" says
//   {"input": {"messages": […]}, "preferred_output": […], "non_preferred_output": […]}   OpenAI's
//   {"messages": […], "rejected_response": "…"}                     in place of the last answer (ms-swift)
//
// A conversation may have "tools", which its template gets. The keys can be set; `weight` is that of a number by
// which the targets of a sample count. SampleNotes has the fields that nothing reads.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/data/chat/chat_template.h"
#include "heddle/data/corpus/text_files.h"
#include "heddle/data/samples/fields.h"
#include "heddle/data/samples/turns.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

struct SampleKeys {
  std::string prompt = "prompt", answer = "completion", messages = "messages";
  std::string chosen = "chosen", rejected = "rejected";  // of pairs
  std::string weight;                                    // "": there is none
  bool pairs = false;
  bool last_answer_only = false;  // of a conversation
};

struct SampleText : SpannedText {
  bool conversation = false;             // written by a template, which says itself where it begins and ends
  float weight = 1;                      // of its targets
  std::vector<std::string> not_written;  // fields that the template has no place for
  std::vector<std::string> speakers;     // of a conversation without an assistant
};

/// Notes about the samples besides their texts.
struct SampleNotes {
  static constexpr size_t kMostNames = 64;
  std::set<std::string> fields;    // that nothing read
  std::set<std::string> speakers;  // of conversations without an assistant
  static void add(const std::vector<std::string>& names, std::set<std::string>& to) {
    for (const std::string& name : names) {
      if (to.size() < kMostNames) to.insert(name);
    }
  }
};

class SampleTexts {
 public:
  SampleTexts(SampleKeys keys, std::optional<ChatTemplate> chat) : keys_(std::move(keys)), chat_(std::move(chat)) {}

  /// The samples of a document that is a whole object: one, or both of a pair. ConfigError "file:line: …" for what
  /// is none, or when the template refuses it.
  std::vector<SampleText> of(const Document& line, SampleNotes* notes = nullptr) const;
  const SampleKeys& keys() const { return keys_; }
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  uint64_t hash() const;

 private:
  using Json = ChatTemplate::Json;
  struct Beside {  // of a conversation
    Json tools, arguments;
    std::string system;
  };
  struct Instruction {
    std::string asked, about;
    Turns before;
    Beside beside;
  };

  SampleText sample_of(Fields& fields) const;
  std::vector<SampleText> pair_of(Fields& fields) const;
  std::vector<SampleText> preferred(Fields& fields) const;
  std::vector<SampleText> with_rejected(Fields& fields, const std::string& rejected) const;
  std::vector<SampleText> pair_of_texts(Fields& fields, const Json& chosen, const Json& rejected) const;
  std::vector<SampleText> pair_of_turns(Fields& fields, const Json& chosen, const Json& rejected) const;
  Beside beside(Fields& fields) const;
  Turns turns(const Json& json, const std::string& key) const;
  std::optional<Instruction> instruction(Fields& fields) const;
  SampleText instructed(const Instruction& about, const std::string& answer) const;
  std::optional<Turns> conversation_in(Fields& fields) const;
  std::vector<std::string> not_written(const Json& messages, const Beside& beside) const;
  SampleText conversation(Turns turns, size_t first, const Beside& beside) const;

  SampleKeys keys_;
  std::optional<ChatTemplate> chat_;
};

struct EncodedSample {
  std::vector<TokenId> ids;
  std::vector<float> weights;  // of each id: 0 where it is no target
};

/// Ids are those of the whole text: of a conversation with its special tokens found, and nothing put before or
/// behind it; of a pair as a document has them. An id is a target from the first on that the text before the span
/// does not have, to the last that has a part of the span.
EncodedSample encode(const SampleText& sample, const Tokenizer& tokenizer, Encoder& encoder);

}  // namespace heddle::data
