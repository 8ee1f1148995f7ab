// A test of configurations as they were released: a file is read, its warnings are kept, and it is written again.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "tests/support/scratch_folder.h"

namespace heddle::config {

class ReleasedConfig : public testing::Test {
 protected:
  using Json = nlohmann::json;

  // "" if the file is read.
  std::string message(const Json& file) {
    std::ofstream(folder_ / "config.json") << file.dump();
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  std::string message(Json file, const std::string& change) {
    file.update(Json::parse(change));  // null stays
    return message(file);
  }
  void expect_read(const Json& file, const std::string& change = "{}") {
    EXPECT_EQ(message(file, change), "") << change;
    EXPECT_EQ(warnings_, std::vector<std::string>{}) << change;
    EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_) << change;
  }

  ScratchFolder folder_;
  model::ModelConfig read_;
  std::vector<std::string> warnings_;
};

}  // namespace heddle::config
