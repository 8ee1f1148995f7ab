// A released model's shards and their index, of any bytes.
#include "heddle/formats/released_files.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static const fuzz::Folder folder("released");
  const std::vector<std::string> files = fuzz::pieces(data, size, 3);
  folder.write("model.safetensors.index.json", files[0]);
  folder.write("model-00001-of-00002.safetensors", files[1]);
  folder.write("model-00002-of-00002.safetensors", files[2]);
  formats::released_names(folder.path());
  fuzz::accepts([] {
    const formats::ReleasedFiles opened(folder.path());
    for (const auto& [name, tensor] : opened.tensors()) {
      if (opened.find(name) != tensor || tensor->name != name) std::abort();
    }
  });
  return 0;
}
