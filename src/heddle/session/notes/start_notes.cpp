#include "heddle/session/notes/start_notes.h"

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/session/run_data.h"

namespace heddle::session {

std::string other_tokenizer(const std::string& start, const std::string& tokenizer) {
  namespace fs = std::filesystem;
  for (fs::path folder = fs::is_directory(start) ? fs::path(start) : fs::path(start).parent_path(); !folder.empty();
       folder = folder.parent_path()) {
    const std::string beside = data::tokenizer_in(folder.string());
    if (!beside.empty()) {
      if (tokenizer.empty())
        return fmt::format("the weights were trained with {}, the data came as tokens: see that they are its",
                           beside);
      if (read_file(beside, data::kMostTokenizerBytes) == read_file(tokenizer, data::kMostTokenizerBytes))
        return "";
      return fmt::format(
          "the weights were trained with {}, the data is cut by {}, which is another: data.tokenizer = "
          "\"{}\" takes the former",
          beside, tokenizer, beside);
    }
    // A run's tokenizer lies in its folder, its checkpoints below.
    const std::string name = folder.filename().string();
    if (name != "checkpoints" && !name.starts_with("step-")) break;
  }
  return "";
}

}  // namespace heddle::session
