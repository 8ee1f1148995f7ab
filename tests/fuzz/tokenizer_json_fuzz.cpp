// libFuzzer: any bytes as tokenizer.json are either refused by ConfigError or give a tokenizer that works.
//
//   cmake --preset fuzz && ninja -C build-fuzz tokenizer_json_fuzz
//   build-fuzz/tokenizer_json_fuzz build-fuzz/tokenizer_json_corpus tests/fixtures/tokenizers -max_len=20000
#include <cstdlib>
#include <string>

#include "heddle/base/error.h"
#include "heddle/data/tokenizer/files/tokenizer_json.h"
#include "heddle/data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  static const std::string kText = "It's 1234 threads, <|endoftext|> woven\r\n\n  in cafe\u0301s; 中文▁\t ";
  try {
    const Tokenizer tokenizer(parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const std::vector<TokenId> ids = Encoder(tokenizer).encode(kText, AddedTokens::parse);
    const std::string text = tokenizer.decode(ids);
    // Where nothing rewrites the text, or drops parts of it, it comes back.
    bool keeps = tokenizer.spec().of_bytes && tokenizer.spec().normalizer.empty();
    for (const PieceStep& step : tokenizer.spec().steps) {
      const auto* split = std::get_if<SplitStep>(&step);
      keeps &= split != nullptr && split->behavior != SplitStep::Behavior::removed;
    }
    for (const AddedToken& added : tokenizer.spec().added) keeps &= !added.lstrip && !added.rstrip;
    if (keeps && text != kText) std::abort();
  } catch (const heddle::ConfigError&) {
  }
  return 0;
}
