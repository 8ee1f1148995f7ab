// libFuzzer: any bytes as tokenizer.json are either refused by ConfigError or give a tokenizer that works.
//
//   cmake --preset fuzz && ninja -C build-fuzz tokenizer_json_fuzz
//   build-fuzz/tokenizer_json_fuzz build-fuzz/tokenizer_json_corpus tests/fixtures/tokenizers -max_len=20000
#include <cstdlib>
#include <string>

#include "heddle/base/error.h"
#include "heddle/data/tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::train;
  static const std::string kText = "It's 1234 threads, <|endoftext|> woven\r\n\n  in cafés; 中文\t ";
  try {
    const heddle::data::Tokenizer tokenizer(
        heddle::data::parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const std::vector<heddle::data::TokenId> ids =
        heddle::data::Encoder(tokenizer).encode(kText, heddle::data::AddedTokens::parse);
    // A prefix space is put before each stretch of text between added tokens; else the text comes back.
    if (!tokenizer.spec().add_prefix_space && tokenizer.decode(ids) != kText) std::abort();
  } catch (const heddle::ConfigError&) {
  }
  return 0;
}
