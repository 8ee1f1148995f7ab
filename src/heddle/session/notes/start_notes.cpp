#include "heddle/session/notes/start_notes.h"

#include <filesystem>

#include "heddle/base/files/output_file.h"
#include "heddle/config/model_json.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/session/run_data.h"

namespace heddle::session {

std::string tokenizer_of_start(const config::RunConfig& config) {
  const std::string& start = config.train.start;
  if (!config.data.tokenizer.empty() || !config::is_released_folder(start)) return "";
  return data::tokenizer_in(start);
}

std::string other_tokenizer(const std::string& start, const std::string& tokenizer) {
  namespace fs = std::filesystem;
  for (fs::path folder = fs::is_directory(start) ? fs::path(start) : fs::path(start).parent_path(); !folder.empty();
       folder = folder.parent_path()) {
    const std::string beside = data::tokenizer_in(folder.string());
    if (!beside.empty()) {
      if (tokenizer.empty())
        return fmt::format(
            "the weights were trained with {}, and the data came as tokens: check that they are of that tokenizer",
            beside);
      if (read_file(beside, data::kMostTokenizerBytes) == read_file(tokenizer, data::kMostTokenizerBytes))
        return "";
      return fmt::format(
          "the weights were trained with {}, but the data is cut by {}: data.tokenizer = "
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
