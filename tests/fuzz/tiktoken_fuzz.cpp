// libFuzzer: any bytes as a tiktoken file and, behind a byte 0, its configuration, are either refused by a
// ConfigError of one line or give a tokenizer that works, on text that is no UTF-8 too.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "heddle/base/error.h"
#include "heddle/data/tokenizer/files/tiktoken_file.h"
#include "heddle/data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  static const std::string kText = "It's  1234 threads, <s> woven\r\n in cafe\u0301s; \xff\xe2\x82 中文▁\t ";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(text.find('\0'), text.size());
  try {
    const Tokenizer tokenizer(
        parse_tiktoken(text.substr(0, cut), text.substr(std::min(cut + 1, text.size())), "cl100k_base"));
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
