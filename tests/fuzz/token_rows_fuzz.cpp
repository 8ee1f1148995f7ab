// Tokens and labels of heddle dump, of any text.
#include <algorithm>

#include "heddle/cli/model/token_rows.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static const fuzz::Folder folder("rows");
  const std::vector<std::string> files = fuzz::pieces(data, size, 2);
  folder.write("tokens.json", files[0]);
  folder.write("labels.json", files[1]);
  fuzz::accepts([] {
    const cli::TokenRows rows = cli::read_token_rows(folder.file("tokens.json"));
    for (const std::vector<int32_t>& row : rows) {
      if (row.size() < 2 || row.size() != rows[0].size() || *std::min_element(row.begin(), row.end()) < 0)
        std::abort();
    }
    if (cli::read_label_mask(folder.file("labels.json"), rows).size() != rows.size()) std::abort();
  });
  return 0;
}
