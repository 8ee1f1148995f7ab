// What heddle search reads: a cluster, restrictions and a calibration, files of any text, and a folder with any
// config.json.
#include "heddle/cli/search_files.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static const fuzz::Folder folder("search");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  folder.write("file.toml", text);
  folder.write("config.json", text);
  const std::string file = folder.file("file.toml");
  fuzz::accepts([&] { cli::read_cluster(file); });
  fuzz::accepts([&] {
    search::Restriction into;
    search::Software software;
    cli::read_restriction(file, into, software);
  });
  fuzz::accepts([&] { cli::read_calibration(file); });
  fuzz::accepts([&] { cli::read_shape(folder.path()); });
  return 0;
}
