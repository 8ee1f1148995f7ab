// Samples to fine-tune on: lines of any text, with a template and without one.
#include "heddle/data/samples/sample_texts.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  // A template that closes its turns, and one that does not.
  const auto with = [](const char* turn) {
    return data::ChatTemplate(
        {.text = fmt::format(
             "{{% for m in messages %}}{}{{% endfor %}}{{% if add_generation_prompt %}}<assistant>{{% endif %}}",
             turn),
         .tokens = {},
         .arguments = {},
         .day = ""},
        "fuzz");
  };
  static const data::SampleTexts plain({}, {}), pairs({.pairs = true}, {});
  static const data::SampleTexts chat({}, with("<{{ m.role }}>{{ m.content }}{{ m.tool_calls or '' }}</s>\n"));
  static const data::SampleTexts chosen({.pairs = true, .last_answer_only = true},
                                        with("<{{ m.role }}>{{ m.content }}"));
  data::Document line;
  line.text = {reinterpret_cast<const char*>(bytes), size};
  line.source = "fuzz";
  line.line = 1;
  for (const data::SampleTexts* samples : {&plain, &pairs, &chat, &chosen}) {
    fuzz::accepts([&] {
      data::SampleNotes notes;
      for (const data::SampleText& sample : samples->of(line, &notes)) {
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
