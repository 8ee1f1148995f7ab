// Steps of a tokenizer.json before and behind its model: normalizer, pre-tokenizer, post-processor, decoder.
#pragma once

#include "heddle/data/tokenizer/files/json_node.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

void read_normalizer(const JsonNode& node, TokenizerSpec& spec);
/// Sets `spec.of_bytes` too: whether it ends with ByteLevel.
void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec);
/// Reads the decoder, behind the pre-tokenizer, to which it must fit.
void read_decoder(const JsonNode& node, TokenizerSpec& spec);
/// Reads the tokens that a single text begins and ends with.
void read_post_processor(const JsonNode& node, TokenizerSpec& spec);

}  // namespace heddle::data
