// Lines of .jsonl as samples to fine-tune on: a prompt with its answer, or a conversation.
//
//   {"prompt": "…", "completion": "…"}                              the answer and the end of the text are targets
//   {"messages": [{"role": "user", "content": "…"}, …]}             the assistant's turns are
//   {"prompt": [{…}, …], "completion": [{…}, …]}                    messages, of which the answers behind the
//   prompt are
//
// A conversation may have "tools", which its template gets. The keys can be told.
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
};

struct SampleText : SpannedText {
  bool conversation = false;  // written by a template, which says itself where it begins and ends
};

class SampleTexts {
 public:
  SampleTexts(SampleKeys keys, std::optional<ChatTemplate> chat) : keys_(std::move(keys)), chat_(std::move(chat)) {}

  /// Of a document that is a whole line. ConfigError "file:line: …" for what is no sample, or when the template
  /// refuses it.
  SampleText of(const Document& line) const;
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  uint64_t hash() const;

 private:
  SampleText read(const Document& line) const;

  SampleKeys keys_;
  std::optional<ChatTemplate> chat_;
};

struct EncodedSample {
  std::vector<TokenId> ids;
  std::vector<uint8_t> weights;  // of each id: 1 where it is a target
};

/// Ids are those of the whole text: of a conversation with its special tokens found, and nothing put before or
/// behind it; of a pair as a document has them. An id is a target from the first on that the text before the span
/// does not have.
EncodedSample encode(const SampleText& sample, const Tokenizer& tokenizer, Encoder& encoder);

}  // namespace heddle::data
