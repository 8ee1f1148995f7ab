// libFuzzer: any bytes as a SentencePiece .model are either refused by a ConfigError of one line or give a
// tokenizer that works, on text that is no UTF-8 too.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "heddle/base/error.h"
#include "heddle/data/tokenizer/files/sentencepiece_model.h"
#include "heddle/data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  static const std::string kText = "It's  1234 threads, <s> woven\r\n in cafe\u0301s; \xff\xe2\x82 中文▁\t ";
  try {
    const Tokenizer tokenizer(parse_sentencepiece_model({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const std::vector<TokenId> ids = Encoder(tokenizer).encode(kText, AddedTokens::parse);
    for (const TokenId id : ids) {
      if (id < 0 || id >= tokenizer.vocabulary()) std::abort();
    }
    tokenizer.decode(ids);
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
