#include "heddle/train/adapters/base.h"

#include <cstdlib>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/formats/released_files.h"
#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/start_weights.h"

namespace heddle::train {

namespace {

constexpr const char *kRank = "rank", *kAlpha = "alpha", *kTargets = "targets", *kStabilized = "rslora",
                     *kBase = "base", *kDigest = "digest of the base";

std::map<std::string, std::string> note_of(const passes::Adapters& chosen) {
  return {{kRank, fmt::format("{}", chosen.rank)},
          {kAlpha, fmt::format("{}", chosen.alpha)},
          {kTargets, chosen.targets},
          {kStabilized, chosen.rank_stabilized ? "true" : "false"}};
}

}  // namespace

std::string digest_of_weights(const std::string& path) {
  uint32_t sum = 0;
  const auto add_heading = [&](const std::string& name, formats::StoredType type,
                               const std::vector<int64_t>& shape) {
    const std::string heading = fmt::format("{} {} {}\n", name, formats::name_of(type), fmt::join(shape, ","));
    sum = crc32c(heading.data(), heading.size(), sum);
  };
  if (std::filesystem::exists(std::filesystem::path(path) / "state.json")) {
    const Checkpoint checkpoint(path, Checkpoint::Verify::headings);  // whole or in shards: in the order of names
    std::map<std::string_view, const SavedTensor*> by_name;
    for (const SavedTensor& tensor : checkpoint.tensors()) by_name[tensor.name] = &tensor;
    for (const auto& [name, tensor] : by_name) {
      if (stands_beside_weight(name)) continue;
      add_heading(tensor->name, tensor->type, tensor->shape);
      for (const std::span<const uint8_t>& piece : tensor->pieces()) sum = crc32c(piece.data(), piece.size(), sum);
    }
  } else {
    const formats::ReleasedFiles files(path);
    for (const auto& [name, tensor] : files.tensors()) {
      if (stands_beside_weight(name)) continue;
      add_heading(name, tensor->type, tensor->shape);
      sum = crc32c(tensor->bytes.data(), tensor->bytes.size(), sum);
    }
  }
  return fmt::format("{:08x}", sum);
}

std::map<std::string, std::string> adapters_note(const Trainer& trainer) {
  if (!trainer.options().is_adapted()) return {};
  std::map<std::string, std::string> note = note_of(trainer.options().plan.lora);
  note[kBase] = trainer.base().path;
  note[kDigest] = trainer.base().digest;
  return note;
}

passes::Adapters adapters_of(const std::map<std::string, std::string>& note, const std::string& place) {
  passes::Adapters chosen;
  if (note.empty()) return chosen;
  const auto said = [&](const char* key) {
    const auto at = note.find(key);
    if (at == note.end()) config_error("{}: its adapters have no '{}'", place, key);
    return at->second;
  };
  const auto number = [&](const char* key) {
    const std::string text = said(key);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= 0) || value > 1e6)
      config_error("{}: its adapters have {} '{}', a number is expected", place, key, text);
    return value;
  };
  chosen.rank = static_cast<int64_t>(number(kRank));
  if (chosen.rank < 1) config_error("{}: its adapters have rank {}", place, said(kRank));
  chosen.alpha = number(kAlpha);
  chosen.targets = said(kTargets);
  chosen.rank_stabilized = said(kStabilized) == "true";
  return chosen;
}

std::string base_path_of(const std::map<std::string, std::string>& note) {
  const auto at = note.find(kBase);
  return at == note.end() ? "" : at->second;
}

void restore_base(const std::map<std::string, std::string>& note, const std::string& place, Trainer& trainer) {
  if (!trainer.options().is_adapted()) {
    if (!note.empty())
      config_error("{}: it holds adapters alone; heddle convert --merge makes weights of them", place);
    return;
  }
  if (note.empty())
    config_error("{}: a checkpoint of all weights; beside lora.rank it is what train.start begins from", place);
  for (const auto& [key, value] : note_of(trainer.options().plan.lora)) {
    const auto at = note.find(key);
    if (at == note.end() || at->second != value)
      config_error("{}: the {} of its adapters is {}, lora.{} is {}", place, key,
                   at == note.end() ? "unknown" : at->second, key, value);
  }
  trainer.initialise();
  std::string from = base_path_of(note);
  const std::string& start = trainer.options().start;
  if (!from.empty() && !std::filesystem::exists(from)) {
    if (start.empty() || !std::filesystem::exists(start))
      config_error("{}: the frozen weights of its adapters are gone: {}; --set train.start says where they are now",
                   place, from);
    from = start;
  }
  if (!from.empty()) start_from(from, config::StartMoments::fresh, trainer);
  const auto digest = note.find(kDigest);
  if (digest == note.end() || digest->second != trainer.base().digest)
    config_error("{}: its adapters belong to other frozen weights: those of {} have the digest {}, {} is expected",
                 place, from.empty() ? "the seed" : from, trainer.base().digest,
                 digest == note.end() ? "another" : digest->second);
}

}  // namespace heddle::train
