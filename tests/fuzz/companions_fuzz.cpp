// What stands beside a released model (settings of its tokenizer and of generation, special tokens, template, of
// any bytes) taken into a run and out again.
#include "heddle/session/text/companions.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static const fuzz::Folder from("released"), run("run");
  static const char* const kNames[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                       "config.json",           "chat_template.jinja",     "tokenizer.json"};
  const std::vector<std::string> files = fuzz::pieces(data, size, std::size(kNames));
  for (size_t i = 0; i < files.size(); ++i) {
    from.write(kNames[i], files[i]);
    run.write(kNames[i], i == 5 ? files[i] : "");
  }
  run.write("chat_template.json", "");
  fuzz::accepts([] {
    session::keep_companions(from.path(), run.path());
    train::Release release;
    session::add_companions(run.path(), 64, release);
    for (const auto& [name, ids] : release.special) {
      if (name.empty()) std::abort();
    }
  });
  return 0;
}
