// Lines of .jsonl as samples to fine-tune on: a prompt with its answer, or a conversation.
//
//   {"prompt": "…", "completion": "…"}                              the answer and the end of the text are targets
//   {"messages": [{"role": "user", "content": "…"}, …]}             the assistant's turns are
//   {"prompt": [{…}, …], "completion": [{…}, …]}                    messages, of which the answers behind the
//   prompt are
//
// or as a pair of answers, of which the first is preferred:
//
//   {"prompt": "…", "chosen": "…", "rejected": "…"}                 texts
//   {"prompt": [{…}, …], "chosen": [{…}, …], "rejected": [{…}, …]}  messages behind those of the prompt
//   {"chosen": [{…}, …], "rejected": [{…}, …]}                      two conversations: what they share is the
//   prompt
//
// A conversation may have "tools", which its template gets. The keys can be told; with `weight` that of a number by
// which the targets of a sample count.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/data/chat/chat_template.h"
#include "heddle/data/corpus/corpus.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

struct SampleKeys {
  std::string prompt = "prompt", answer = "completion", messages = "messages";
  std::string chosen = "chosen", rejected = "rejected";  // of pairs
  std::string weight;                                    // "": there is none
  bool pairs = false;
};

struct SampleText : SpannedText {
  bool conversation = false;  // written by a template, which says itself where it begins and ends
  float weight = 1;           // of its targets
};

class SampleTexts {
 public:
  SampleTexts(SampleKeys keys, std::optional<ChatTemplate> chat) : keys_(std::move(keys)), chat_(std::move(chat)) {}

  /// Of a document that is a whole line: a sample, or both of a pair. ConfigError "file:line: …" for what is none,
  /// or when the template refuses it.
  std::vector<SampleText> of(const Document& line) const;
  const SampleKeys& keys() const { return keys_; }
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  uint64_t hash() const;

 private:
  using Json = ChatTemplate::Json;
  std::vector<SampleText> read(const Document& line) const;
  std::vector<SampleText> pair_of(const Json& object) const;
  SampleText conversation(const Json& messages, size_t first, const Json* tools) const;

  SampleKeys keys_;
  std::optional<ChatTemplate> chat_;
};

struct EncodedSample {
  std::vector<TokenId> ids;
  std::vector<float> weights;  // of each id: 0 where it is no target
};

/// Ids are those of the whole text: of a conversation with its special tokens found, and nothing put before or
/// behind it; of a pair as a document has them. An id is a target from the first on that the text before the span
/// does not have.
EncodedSample encode(const SampleText& sample, const Tokenizer& tokenizer, Encoder& encoder);

}  // namespace heddle::data
