// Hashes of n-grams (Qwen4): a token and those before it choose a row of each of a layer's tables. The tables stand
// one below the other in one matrix. Table h of n-grams of n tokens x_0 (the token itself), x_1, … (those before
// it) has row  first_h + (x_0·m_0 ⊕ … ⊕ x_{n−1}·m_{n−1}) mod rows_h.  Its size rows_h is a prime; the multipliers m
// are odd numbers from the layer's seed. Where a document begins or an end token stands in between, x_i is the end
// token.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::model {

struct NgramSizes {
  int64_t vocabulary = 0;  // of the tokens
  int64_t size = 0;        // tokens of the longest n-gram
  int64_t heads = 0;       // tables of n-grams of each length
  int64_t base = 0;        // tables have as many rows as primes from here on
  int64_t seed = 0;
  int64_t index = 0;  // of the layer, among those that have such tables

  /// Rows that a token chooses.
  int64_t each() const { return (size - 1) * heads; }
};

struct NgramHashes {
  std::vector<int64_t> multipliers;  // of a token and of each before it
  std::vector<int64_t> rows, first;  // of each table, the shortest n-grams first
  int64_t total = 0;                 // of all tables
};
NgramHashes ngram_hashes(const NgramSizes& sizes);

/// The layers of model.ngram_layers, the first layer being 0, in increasing order. ConfigError where it is no list
/// of layers.
std::vector<int64_t> ngram_layers_of(const ModelConfig& config);
/// ConfigError naming the key where tables of n-grams are impossible, or the model has nothing to add them to.
void validate_ngrams(const ModelConfig& config);
/// The place of a layer among those that have tables; −1: it has none.
int64_t ngram_index(const ModelConfig& config, int64_t layer);
NgramSizes ngram_sizes(const ModelConfig& config, int64_t index);
/// Rows of a layer's matrix: of all its tables, filled up.
int64_t ngram_rows(const ModelConfig& config, int64_t index);

}  // namespace heddle::model
