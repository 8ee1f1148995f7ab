// A small model in training, as tests of trainers set it.
#pragma once

#include <string>
#include <vector>

#include "heddle/train/run_config_plan.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {

/// Sequences of 16 tokens, one thread a rank.
inline config::RunConfig small_config(int64_t batch, int64_t microbatch = 1) {
  config::RunConfig c;
  c.model = test::small_model();
  c.train.global_batch = batch;
  c.train.microbatch = microbatch;
  c.train.sequence_length = 16;
  c.device.threads = 1;
  return c;
}

/// The same with keys as a file and the command line set them.
inline config::RunConfig with_keys(const config::RunConfig& c, const std::vector<std::string>& set) {
  return config::parse_run_config(config::toml_of(c, config::RunConfig()), "small.toml", set);
}

}  // namespace heddle::train
