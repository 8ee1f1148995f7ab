#include "heddle/train/saved/checked_json.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/safetensors.h"

namespace heddle::train {

using nlohmann::json;

namespace {
constexpr int kMostNesting = 16;
std::string checksum_of(const std::string& text) { return checksum_text(crc32c(text.data(), text.size())); }
}  // namespace

std::string checksum_text(uint32_t sum) { return fmt::format("{:08x}", sum); }

std::string checked_text(const json& state) {
  return json{{"checksum", checksum_of(state.dump())}, {"state", state}}.dump(1) + "\n";
}

json checked_json(const std::string& text, const std::string& path) {
  const json root = formats::parse_json(text, path, kMostNesting);
  const json& state = root.at("state");
  const std::string found = checksum_of(state.dump());
  if (root.size() != 2 || root.at("checksum").get<std::string>() != found) {
    config_error("{}: its content has the checksum {}, {} is expected; the file is damaged", path, found,
                 shown(root.at("checksum").get<std::string>()));
  }
  if (const std::string whole = checked_text(state); text != whole) {
    config_error("{}: {} bytes, of which the state is {}: something was added; the file is damaged", path,
                 text.size(), whole.size());
  }
  return state;
}

}  // namespace heddle::train
