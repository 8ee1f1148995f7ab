// libFuzzer: any bytes as a chat template are either refused by a ConfigError of one line or make text of a
// conversation, the same each time, within their bounds.
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/data/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  using Json = ChatTemplate::Json;
  static const Json kMessages = Json::parse(
      R"([{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Who? 中🙂", "n": [1, 2.5, null, true]},
          {"role": "assistant", "content": "<think>a</think>\n\nI.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}])");
  try {
    ChatTemplate::Files files{.text = std::string(reinterpret_cast<const char*>(data), size),
                              .tokens = {{"bos_token", "<s>"}}};
    const ChatTemplate chat(std::move(files), "fuzz");
    const std::string text = chat.render(kMessages, true, kMessages);
    if (text != chat.render(kMessages, true, kMessages)) std::abort();
    size_t last = 0;
    const SpannedText whole = chat.conversation({.messages = kMessages, .arguments = {}, .silent = {}});
    for (const auto& [begin, end] : whole.targets) {
      if (begin < last || end < begin || end > whole.text.size()) std::abort();
      last = end;
    }
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
