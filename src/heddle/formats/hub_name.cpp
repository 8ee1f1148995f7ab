#include "heddle/formats/hub_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace heddle::formats {

namespace {

constexpr size_t kMostReferenceBytes = 96;  // of the Hub's names

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}

}  // namespace

std::string hub_hint(std::string_view path) {
  const size_t slash = path.find('/');
  if (path.size() > kMostReferenceBytes || slash == 0 || slash == std::string_view::npos ||
      slash + 1 == path.size())
    return "";
  const std::string_view owner = path.substr(0, slash), name = path.substr(slash + 1);
  if (owner.front() == '.' || name.front() == '.') return "";
  if (!std::all_of(owner.begin(), owner.end(), is_letter) || !std::all_of(name.begin(), name.end(), is_letter))
    return "";
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(owner), ignored)) return "";  // a folder of the user's
  return fmt::format(
      "; nothing is downloaded: where this is a name on the Hugging Face Hub, `hf download {} --local-dir "
      "{}` gets the folder {}",
      path, name, name);
}

}  // namespace heddle::formats
