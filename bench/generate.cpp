// Tokens a second of generated text, with the cache and without it, in turn, in one process.
//
//   bench_generate [--config FILE] [--model latent|grouped] [--sequence N] [--prompt N] [--tokens N] [--texts N]
//                  [--rounds N] [--dtype f32|bf16] [--threads N] [--json]
//
// A round continues the same prompts both ways by the likeliest tokens; what is compared is the median of the
// rounds, and of their ratios. Weights are random, which costs nothing else than trained ones do. `same` counts the
// tokens that are the same both ways, before the first that is not.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::bench {

namespace {

using Ids = std::vector<int32_t>;

struct Measured {
  std::vector<Ids> texts;
  double seconds = 0;
};

// `tokens` more of each text, the prompt's reading among the time.
Measured continued(session::NextLogits& model, std::vector<Ids> texts, int64_t tokens, size_t window) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < tokens; ++i) {
    std::vector<session::NextLogits::Asked> asked;
    for (size_t t = 0; t < texts.size(); ++t) {
      asked.push_back(
          {static_cast<int64_t>(t), std::span(texts[t]).subspan(session::window_begin(texts[t].size(), window))});
    }
    const std::vector<std::vector<float>> logits = model.after(asked);
    for (size_t t = 0; t < texts.size(); ++t) {
      texts[t].push_back(
          static_cast<int32_t>(std::max_element(logits[t].begin(), logits[t].end()) - logits[t].begin()));
    }
  }
  return {std::move(texts), static_cast<double>(now_ns() - start) * 1e-9};
}

int64_t same_tokens(const std::vector<Ids>& a, const std::vector<Ids>& b, int64_t prompt) {
  int64_t same = 0;
  for (size_t t = 0; t < a.size(); ++t)
    same += std::mismatch(a[t].begin(), a[t].end(), b[t].begin()).first - a[t].begin() - prompt;
  return same;
}

}  // namespace

int run(Arguments& arguments) {
  std::string file = "examples/demo.toml", model = "latent";
  int64_t sequence = 256, prompt = 32, tokens = 128, texts = 1, rounds = 3, threads = 0;
  Dtype dtype = Dtype::f32;
  bool json = false;
  arguments.word("--config", "FILE", file);
  arguments.word("--model", "NAME", model, {"latent", "grouped"});
  arguments.number("--sequence", sequence, 2);
  arguments.number("--prompt", prompt);
  arguments.number("--tokens", tokens);
  arguments.number("--texts", texts);
  arguments.number("--rounds", rounds);
  arguments.number("--threads", threads, 0);
  arguments.dtype("--dtype", dtype);
  arguments.flag("--json", json);
  arguments.read();

  std::vector<std::string> set{
      fmt::format("train.sequence_length={}", sequence), fmt::format("device.dtype={}", name_of(dtype)),
      fmt::format("device.threads={}", threads), "train.global_batch=1", "train.microbatch=1"};
  config::RunConfig config = config::read_run_config(file, set);
  if (model == "grouped") {
    config.model.attention = model::ModelConfig::Attention::grouped;
    config.model.num_key_value_heads = 2;
    config.model.head_dim = 64;
    config.model.qk_norm = true;
    config.model.rope_interleave = false;
  }
  train::Trainer trainer(train::trainer_options_of(config, 0, {}, texts));
  trainer.initialise();
  const auto vocabulary = static_cast<uint64_t>(trainer.options().model.vocab_size);
  std::vector<Ids> prompts(static_cast<size_t>(texts));
  for (size_t t = 0; t < prompts.size(); ++t) {
    for (int64_t i = 0; i < prompt; ++i)
      prompts[t].push_back(static_cast<int32_t>(RandomKey(t).bits(static_cast<uint64_t>(i)) % vocabulary));
  }

  std::vector<double> with, without, ratios;
  int64_t same = 0;
  const auto figures = [&] {
    return nlohmann::ordered_json{{"model", model},
                                  {"dtype", name_of(dtype)},
                                  {"sequence", sequence},
                                  {"prompt", prompt},
                                  {"tokens", tokens},
                                  {"texts", texts},
                                  {"rounds", with.size()},
                                  {"with_cache_tokens_per_s", median(with)},
                                  {"without_cache_tokens_per_s", median(without)},
                                  {"ratio", median(ratios)},
                                  {"same_tokens", same},
                                  {"of_tokens", tokens * texts}};
  };
  const auto rate = [&](double seconds) { return static_cast<double>(tokens * texts) / seconds; };
  for (int64_t round = -1; round < rounds; ++round) {  // the first warms up
    const auto window = static_cast<size_t>(sequence);
    const Measured cached = continued(*session::logits_from_cache(trainer), prompts, tokens, window);
    const Measured anew = continued(*session::logits_anew(trainer), prompts, tokens, window);
    same = same_tokens(cached.texts, anew.texts, prompt);
    if (round < 0) continue;
    with.push_back(rate(cached.seconds));
    without.push_back(rate(anew.seconds));
    ratios.push_back(anew.seconds / cached.seconds);
    so_far(figures().dump(2));
  }
  if (json) {
    fmt::print("{}\n", figures().dump(2));
    return 0;
  }
  fmt::print("{} {}, sequences of {}, {} text(s) of {} + {} tokens, medians of {} rounds in turn\n", model,
             name_of(dtype), sequence, texts, prompt, tokens, rounds);
  fmt::print(
      "with the cache     {:8.1f} tokens/s\nwithout            {:8.1f} tokens/s\nratio              {:8.1f}\n",
      median(with), median(without), median(ratios));
  fmt::print("the same           {} of {} tokens\n", same, tokens * texts);
  return 0;
}

}  // namespace heddle::bench
