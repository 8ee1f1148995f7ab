// Gated streams of the residual, and embeddings of n-grams that layers add to them.
#pragma once

#include "tests/parity/draw.h"

namespace heddle::parity {

/// Tables of n-grams in some layers, whose rows ranks of tp share, as they share columns of the streams.
template <class Dice>
void draw_ngrams(Draw& d, Dice& dice) {
  model::ModelConfig& c = d.model;
  const plan::Degrees& mesh = d.plan.mesh;
  const int64_t cuts = mesh.tp * (d.plan.parallel.context == model::Context::ulysses ? mesh.cp : 1);
  if (c.residual_width() % cuts != 0) return;
  for (int64_t l = 1; l <= c.num_hidden_layers; ++l) {
    if (dice.one_in(2) || (l == c.num_hidden_layers && c.ngram_layers.empty()))
      c.ngram_layers += fmt::format("{}{}", c.ngram_layers.empty() ? "" : ",", l);
  }
  c.ngram_size = dice.of({2, 3, 4});
  c.ngram_heads = dice.of({1, 2});
  c.ngram_embedding_size = (c.ngram_size - 1) * c.ngram_heads * dice.of({2, 3, 5});
  c.ngram_vocab_size = dice.of({5, 11});
  c.ngram_vocab_multiple = 12 * dice.of({1, 2});
  c.ngram_seed = dice.of({0, 1234});
  c.ngram_conv_kernel_dim = dice.of({1, 2, 4});
  c.ngram_end_token = dice.of({0, 3});
}

/// In a third of the draws with streams where the rest of the model allows it.
template <class Dice>
void draw_gated_streams(Draw& d, Dice dice) {
  model::ModelConfig& c = d.model;
  if (!c.has_streams() || !dice.one_in(3)) return;
  const model::ModelConfig before = c, usual;
  c.hyper_connections_kind = model::HyperConnection::gated;
  c.hyper_connections = dice.of({2, 3, 4});
  c.hyper_connections_rank = dice.of({3, 8});
  c.hyper_connections_iterations = usual.hyper_connections_iterations;
  c.hyper_connections_magnitude = usual.hyper_connections_magnitude;
  c.hyper_connections_mean = false;
  if (c.recurrence == model::Recurrence::gated_delta) c.linear_sigmoid_gate = dice.one_in(2);
  const bool tables = dice.one_in(2);
  if (tables) draw_ngrams(d, dice);
  try {
    model::validate(c);
  } catch (const ConfigError&) {
    c = before;
  }
}

inline std::string text_of_ngrams(const model::ModelConfig& c) {
  if (!c.has_gated_streams()) return "";
  const std::string maps = fmt::format(", {} wide", c.hyper_connections_rank);
  if (!c.has_ngrams()) return maps;
  return maps +
         fmt::format(", {} tables of n-grams in layers {}", (c.ngram_size - 1) * c.ngram_heads, c.ngram_layers);
}

}  // namespace heddle::parity
