#include "heddle/formats/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/text.h"

namespace heddle::formats {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCacheFileBytes = 96;  // of each part of the Hub's names

// Letters, digits and the Hub's marks; a name that begins with a point or holds ".." or "--" is none, so no part
// leads out of the cache.
bool is_part(std::string_view part) {
  if (part.empty() || part.size() > kMostCacheFileBytes || part.front() == '.' || part.front() == '-') return false;
  if (part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos) return false;
  return std::all_of(part.begin(), part.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::optional<HubName> hub_name(std::string_view text) {
  const size_t at = text.find('@'), slash = text.find('/');
  if (slash == std::string_view::npos || (at != std::string_view::npos && at < slash)) return std::nullopt;
  const std::string_view name = text.substr(0, at);
  HubName hub{std::string(name.substr(0, slash)), std::string(name.substr(slash + 1)),
              at == std::string_view::npos ? "main" : std::string(text.substr(at + 1))};
  if (!is_part(hub.owner) || !is_part(hub.model) || !is_part(hub.revision)) return std::nullopt;
  return hub;
}

std::string hub_cache_folder() {
  for (const char* whole : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string folder = variable(whole); !folder.empty()) return folder;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return (fs::path(home) / "hub").string();
  fs::path cache(variable("XDG_CACHE_HOME"));
  if (cache.empty()) cache = fs::path(variable("HOME")) / ".cache";
  return (cache / "huggingface" / "hub").string();
}

std::string cached_folder(const HubName& name) {
  constexpr int64_t kMostRef = 1024;
  const fs::path model = fs::path(hub_cache_folder()) / fmt::format("models--{}--{}", name.owner, name.model);
  const fs::path ref = model / "refs" / name.revision;
  std::error_code error;
  std::string revision = name.revision;
  if (fs::is_regular_file(ref, error)) {
    revision = trimmed(read_file(ref.string(), kMostRef));
    if (!is_part(revision)) config_error("{}: names no revision", ref.string());
  }
  const fs::path snapshot = model / "snapshots" / revision;
  return fs::is_directory(snapshot, error) ? snapshot.string() : "";
}

std::string download_command(const HubName& name) {
  return fmt::format("hf download {}{}", name.text(),
                     name.revision == "main" ? "" : " --revision " + name.revision);
}

}  // namespace heddle::formats
