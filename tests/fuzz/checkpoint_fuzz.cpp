// A checkpoint's two files: its state of any text, with the checksums that it would have, and its tensors of any
// bytes.
#include <nlohmann/json.hpp>

#include "heddle/base/hash.h"
#include "heddle/formats/safetensors.h"
#include "heddle/train/checkpoint.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  using nlohmann::json;
  static const fuzz::Folder folder("checkpoint");
  const std::vector<std::string> files = fuzz::pieces(data, size, 2);
  folder.write("model.safetensors", files[1]);
  const auto sum_of = [](const auto& bytes) { return fmt::format("{:08x}", crc32c(bytes.data(), bytes.size())); };
  std::string text = files[0];
  json state = json::parse(files[0], nullptr, false);
  if (state.is_object() && state.contains("tensors")) {  // else as it is
    fuzz::accepts([&] {
      const formats::SafetensorsFile tensors(folder.file("model.safetensors"));
      state["header"] = sum_of(tensors.header());
      state["tensors"] = json::object();
      for (const formats::StoredTensor& tensor : tensors.tensors())
        state["tensors"][tensor.name] = sum_of(tensor.bytes);
    });
    text = json{{"checksum", sum_of(state.dump(-1, ' ', false, json::error_handler_t::replace))}, {"state", state}}
               .dump(1, ' ', false, json::error_handler_t::replace) +
           "\n";
  }
  folder.write("state.json", text);
  fuzz::accepts([] {
    const train::Checkpoint opened(folder.path());
    if (opened.state().step < 0) std::abort();
    if (!(train::Checkpoint(folder.path(), train::Checkpoint::Verify::headings).state() == opened.state()))
      std::abort();
  });
  return 0;
}
