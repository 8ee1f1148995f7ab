// Models of the Hugging Face Hub that its cache holds: the folders that `hf download` and Transformers leave on
// this machine. Nothing is downloaded.
//
//   $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
//   ~/.cache/huggingface/hub
//     models--OWNER--MODEL/refs/main          the revision's name
//     models--OWNER--MODEL/snapshots/REV/     its files, links to ../../blobs
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::formats {

/// A name as people type it: "Qwen/Qwen3-0.6B", or with a revision, "Qwen/Qwen3-0.6B@main".
struct HubName {
  std::string owner, model;
  std::string revision;  // "main" where none is said
  std::string text() const { return owner + "/" + model; }
};

/// Nothing where the text is no such name.
std::optional<HubName> hub_name(std::string_view text);

/// The cache's folder, by the environment; it need not be there.
std::string hub_cache_folder();

/// The snapshot of the model's revision in the cache, "" where it has none. ConfigError for a file of refs that
/// names no revision.
std::string cached_folder(const HubName& name);

/// The command that puts the model into the cache: "hf download Qwen/Qwen3-0.6B".
std::string download_command(const HubName& name);

}  // namespace heddle::formats
