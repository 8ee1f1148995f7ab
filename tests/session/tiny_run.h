// The configuration of a run of two ranks that ends in a moment, for tests.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "heddle/base/random.h"
#include "tests/support/scratch_folder.h"

namespace heddle::session {

/// Writes a text into the folder, and returns the TOML of a run on it: three steps, evaluation after the second.
inline std::string tiny_run(const ScratchFolder& scratch) {
  std::ofstream text(scratch / "text.txt");
  const RandomKey random(1);
  const std::vector<std::string> words = {"warp", "weft", "shuttle", "thread", "heddle", "loom", "cloth", "reed"};
  for (int i = 0; i < 20000; ++i)
    text << words[random.bits(static_cast<uint64_t>(i)) % words.size()] << (i % 60 == 59 ? ".\n\n" : " ");
  return fmt::format(R"(
name = "services"
output = "{0}/run"
[model]
vocab_size = 320
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 8
v_head_dim = 8
first_k_dense_replace = 1
[data]
source = "{0}/text.txt"
folder = "{0}/data"
heldout_fraction = 0.3
[train]
steps = 3
global_batch = 4
microbatch = 2
sequence_length = 32
eval_every = 2
eval_sequences = 2
[mesh]
dp = 2
[device]
threads = 1
)",
                     scratch.path().string());
}

}  // namespace heddle::session
