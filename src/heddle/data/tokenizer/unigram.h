// The unigram model: of all ways to cut a piece into tokens the one whose scores add up highest (Kudo 2018).
//
// Scores are added in the precision and order of the program whose tokenizer it is, because their rounding decides
// ties and near ties. They are single for SentencePiece (unigram_model.cc, EncodeOptimized), double for Hugging
// Face's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

class Unigram {
 public:
  /// Scratch of a search; one a thread.
  struct Scratch {
    struct Node {
      double score;
      uint32_t length;  // of the token that ends here; 0: none does
      TokenId id;
    };
    std::vector<Node> nodes;
    std::vector<size_t> path;
  };

  /// ConfigError if no id stands for what is unknown and no bytes do.
  Unigram(const TokenizerSpec& spec, const std::string& place);
  /// Appends the ids of a piece.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  struct Edge {
    uint64_t key = ~uint64_t{0};  // node << 8 | byte
    uint32_t node = 0;
  };
  uint32_t next(uint32_t node, uint8_t byte) const;
  void emit(std::string_view piece, Scratch& scratch, bool& after_unknown, std::vector<TokenId>& ids) const;

  std::vector<Edge> edges_;     // open addressing
  std::vector<TokenId> id_at_;  // of each node of the trie, or -1
  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  std::vector<TokenId> byte_tokens_;
  TokenId unknown_;
  double least_ = 0, most_ = 0;
  bool single_;
};

}  // namespace heddle::data
