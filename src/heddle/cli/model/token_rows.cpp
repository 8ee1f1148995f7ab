#include "heddle/cli/model/token_rows.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/formats/json_text.h"

namespace heddle::cli {

namespace {

using PlainJson = nlohmann::json;

constexpr int32_t kNoLabel = -100;  // as in PyTorch's cross_entropy

// [[id, …], …]: sequences of one length, of ids or of `other`.
TokenRows read_rows(const std::string& path, const std::string& flag, std::optional<int32_t> other = {}) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const PlainJson json = formats::parse_json(read_file(path, kMostBytes), path, 4);
  const auto wrong = [&](const std::string& found) {
    config_error("{} {}: {}, expected: [[id, ...], ...], sequences of one length", flag, path, found);
  };
  if (!json.is_array() || json.empty()) wrong("no list of sequences");
  TokenRows sequences;
  for (const PlainJson& row : json) {
    const std::string place = fmt::format("sequence {}", sequences.size() + 1);
    if (!row.is_array() || row.size() < 2) wrong(place + " is no list of two ids or more");
    std::vector<int32_t>& sequence = sequences.emplace_back();
    for (const PlainJson& id : row) {
      constexpr int64_t kMostIds = 1 << 21;
      const bool is_other = other && id.is_number_integer() && id == *other;
      if (!is_other && (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() >= kMostIds))
        wrong(fmt::format("{} has {}, which is no token id", place, formats::shown(id)));
      sequence.push_back(id.get<int32_t>());
    }
    if (sequence.size() != sequences[0].size()) {
      wrong(fmt::format("{} has {} ids, the first {}", place, sequence.size(), sequences[0].size()));
    }
  }
  return sequences;
}

}  // namespace

TokenRows read_token_rows(const std::string& path) { return read_rows(path, "--tokens"); }

std::vector<std::vector<uint8_t>> read_label_mask(const std::string& path, const TokenRows& tokens) {
  const TokenRows labels = read_rows(path, "--labels", kNoLabel);
  if (labels.size() != tokens.size() || labels[0].size() != tokens[0].size()) {
    config_error("--labels {}: {} sequences of {}, those of --tokens are {} of {}", path, labels.size(),
                 labels[0].size(), tokens.size(), tokens[0].size());
  }
  std::vector<std::vector<uint8_t>> masked;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<uint8_t>& mask = masked.emplace_back();
    for (size_t t = 0; t < tokens[i].size(); ++t) {
      if (labels[i][t] != kNoLabel && labels[i][t] != tokens[i][t]) {
        config_error("--labels {}: sequence {} has {} at {}, accepted are the token there, {}, and {}", path, i + 1,
                     labels[i][t], t + 1, tokens[i][t], kNoLabel);
      }
      mask.push_back(labels[i][t] == kNoLabel);
    }
  }
  return masked;
}

}  // namespace heddle::cli
