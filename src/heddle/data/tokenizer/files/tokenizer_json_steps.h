// What a tokenizer.json does before and behind its model: normalizer, pre-tokenizer, post-processor, decoder.
#pragma once

#include "heddle/data/tokenizer/files/json_node.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

void read_normalizer(const JsonNode& node, TokenizerSpec& spec);
/// Sets `spec.of_bytes` too: whether it ends with ByteLevel.
void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec);
/// Behind the pre-tokenizer, to which it must fit.
void read_decoder(const JsonNode& node, TokenizerSpec& spec);
/// What a single text begins and ends with.
void read_post_processor(const JsonNode& node, TokenizerSpec& spec);

}  // namespace heddle::data
