// A folder with PEFT's adapter_config.json and adapter_model.safetensors, of any bytes.
#include "heddle/train/adapters/peft_files.h"
#include "tests/fuzz/pieces.h"
#include "tests/support/tiny_models.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static const fuzz::Folder folder("adapter");
  static const model::ModelConfig model = test::divisible_model();
  const std::vector<std::string> files = fuzz::pieces(data, size, 2);
  folder.write("adapter_config.json", files[0]);
  folder.write("adapter_model.safetensors", files[1]);
  fuzz::accepts([] {
    const passes::Adapters chosen = train::adapters_in(folder.path(), model);
    if (chosen.rank < 1 || chosen.targets.empty()) std::abort();
    train::check_adapters(folder.path(), chosen);
    if (train::text_of_model(model, chosen).parameters[0].size() <=
        train::text_of_model(model).parameters[0].size())
      std::abort();
  });
  return 0;
}
