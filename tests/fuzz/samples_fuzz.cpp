// Samples to fine-tune on: lines of any text, with a template and without one.
#include "heddle/data/samples/sample_texts.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  static const data::SampleTexts plain({}, {});
  static const data::SampleTexts chat(
      {}, data::ChatTemplate({.text = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}"
                                      "{% if add_generation_prompt %}<assistant>{% endif %}"},
                             "fuzz"));
  data::Document line;
  line.text = {reinterpret_cast<const char*>(bytes), size};
  line.source = "fuzz";
  line.line = 1;
  for (const data::SampleTexts* samples : {&plain, &chat}) {
    fuzz::accepts([&] {
      for (const data::SampleText& sample : samples->of(line)) {
        size_t last = 0;
        for (const auto& [begin, end] : sample.targets) {
          if (begin < last || end < begin || end > sample.text.size()) std::abort();
          last = end;
        }
      }
    });
  }
  return 0;
}
