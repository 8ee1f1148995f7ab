// What heddle search reads: a cluster, restrictions and a calibration, files of any text, and a folder with any
// config.json.
#include "advisor/commands/search_files.h"
#include "heddle/config/shape_json.h"
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
    search::Job job;
    cli::read_restriction(file, into, job);
  });
  fuzz::accepts([&] { cli::read_calibration(file); });
  fuzz::accepts([&] { config::read_shape_json(folder.file("config.json"), "fuzz"); });
  return 0;
}
