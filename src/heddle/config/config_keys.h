// What a Hugging Face config.json says besides the sizes that model_json reads.
//
// Source: DeepseekV2Config and DeepseekV3Config of Transformers 5, gone through key by key, and the code released
// with the models. A key that changes the computation to something that is not built is refused by name; one that
// cannot change it is passed over; one that nobody here knows is warned of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace heddle::config {

/// ConfigError naming the key, its value and what is accepted. `root` is an object in the words of V3 (a V2 file
/// after its rewriting). Keys of no known meaning are added to `warnings`, one line each, unless null.
void check_keys(const nlohmann::json& root, const std::string& place, std::vector<std::string>* warnings);

}  // namespace heddle::config
