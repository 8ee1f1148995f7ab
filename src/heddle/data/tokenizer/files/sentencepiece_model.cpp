#include "heddle/data/tokenizer/files/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <protozero/pbf_reader.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

enum class PieceType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
enum class ModelType : int32_t { unigram = 1, bpe = 2, word = 3, character = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

struct Trainer {
  ModelType type = ModelType::unigram;
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  int32_t eos_id = 2;
};

// A field with the form it must have; one of another form is passed over like one that is not known. The numbers
// are those of sentencepiece_model.proto.
constexpr uint32_t bytes(uint32_t field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::length_delimited);
}
constexpr uint32_t varint(uint32_t field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::varint);
}
constexpr uint32_t fixed(uint32_t field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::fixed32);
}

Piece read_piece(protozero::pbf_reader message) {
  Piece piece;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case bytes(1): piece.text = message.get_string(); break;
      case fixed(2): piece.score = message.get_float(); break;
      case varint(3): piece.type = static_cast<PieceType>(message.get_enum()); break;
      default: message.skip();
    }
  }
  return piece;
}

Trainer read_trainer(protozero::pbf_reader message) {
  Trainer trainer;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case varint(3): trainer.type = static_cast<ModelType>(message.get_enum()); break;
      case varint(24): trainer.whitespace_as_suffix = message.get_bool(); break;
      case varint(35): trainer.byte_fallback = message.get_bool(); break;
      case varint(42): trainer.eos_id = message.get_int32(); break;
      default: message.skip();
    }
  }
  return trainer;
}

// u32 bytes of the trie, the trie, replacements that zeros end.
void read_map(std::string_view blob, const std::string& name, CharsMapStep& step) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
  if (blob.size() < 8 || trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
    config_error("{}: normalizer_spec.precompiled_charsmap: cut short or damaged", name);
  }
  step.trie.resize(trie_bytes / 4);
  std::memcpy(step.trie.data(), blob.data() + 4, trie_bytes);
  step.replacements = blob.substr(4 + trie_bytes);
  if (!is_valid_utf8(step.replacements)) {
    config_error("{}: normalizer_spec.precompiled_charsmap: a replacement is no UTF-8", name);
  }
}

CharsMapStep read_normalizer_spec(protozero::pbf_reader message, const std::string& name) {
  CharsMapStep step;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case bytes(2): {
        const protozero::data_view blob = message.get_view();
        read_map({blob.data(), blob.size()}, name, step);
        break;
      }
      case varint(3): step.dummy_prefix = message.get_bool(); break;
      case varint(4): step.remove_extra_spaces = message.get_bool(); break;
      case varint(5): step.mark_spaces = message.get_bool(); break;
      default: message.skip();
    }
  }
  return step;
}

void check(const Piece& piece, size_t id, const std::string& name) {
  if (piece.text.empty() || piece.text.size() > kMostTokenBytes || !is_valid_utf8(piece.text)) {
    config_error("{}: piece {} is '{}', expected are 1 to {} bytes of UTF-8", name, id, escaped(piece.text, 40),
                 kMostTokenBytes);
  }
  if (!std::isfinite(piece.score)) config_error("{}: piece {} has no finite score", name, id);
}

// A control piece becomes an added token: found where added tokens are asked for, never in training text.
void add_piece(const Piece& piece, TokenizerSpec& spec, const std::string& name) {
  const size_t id = spec.tokens.size();
  const auto token = static_cast<TokenId>(id);
  spec.tokens.emplace_back();
  spec.scores.push_back(piece.score);
  spec.user_defined.push_back(piece.type == PieceType::user_defined);
  switch (piece.type) {
    case PieceType::user_defined:
      spec.tokens[id] = piece.text;
      if (spec.joining == Joining::scores) spec.whole.push_back(piece.text);
      return;
    case PieceType::normal: spec.tokens[id] = piece.text; return;
    case PieceType::unknown:
      if (spec.unknown >= 0) config_error("{}: piece {} is a second unknown one", name, id);
      spec.unknown = token;
      spec.added.push_back({token, piece.text});
      return;
    case PieceType::control: spec.added.push_back({token, piece.text}); return;
    case PieceType::byte: {
      if (piece.text != fmt::format("<0x{:02X}>", spec.byte_tokens.size())) {
        config_error("{}: byte piece {} is '{}', expected is <0x{:02X}>", name, id, escaped(piece.text, 40),
                     spec.byte_tokens.size());
      }
      spec.byte_tokens.push_back(token);
      return;
    }
    case PieceType::unused:
      if (spec.joining == Joining::scores) {
        config_error("{}: piece {} is unused, which is not accepted in a BPE model", name, id);
      }
      return;
  }
  config_error("{}: piece {} has the type {}, accepted are 1 to 6", name, id, static_cast<int32_t>(piece.type));
}

}  // namespace

TokenizerSpec parse_sentencepiece_model(std::string_view text, const std::string& name) {
  std::vector<Piece> pieces;
  Trainer trainer;
  CharsMapStep normalizer;
  try {
    protozero::pbf_reader model(text.data(), text.size());
    while (model.next()) {
      switch (model.tag_and_type()) {
        case bytes(1): pieces.push_back(read_piece(model.get_message())); break;
        case bytes(2): trainer = read_trainer(model.get_message()); break;
        case bytes(3): normalizer = read_normalizer_spec(model.get_message(), name); break;
        default: model.skip();
      }
      if (pieces.size() > static_cast<size_t>(kMostTokens))
        config_error("{}: more than {} pieces", name, kMostTokens);
    }
  } catch (const protozero::exception& error) {
    config_error("{}: no SentencePiece model, or damaged: {}", name, error.what());
  }
  if (pieces.empty()) config_error("{}: no SentencePiece model: it has no pieces", name);
  TokenizerSpec spec;
  spec.of_bytes = false;
  spec.fuse_unknown = true;
  spec.single_precision = true;
  spec.marks_spaces = true;
  switch (trainer.type) {
    case ModelType::unigram: spec.joining = Joining::unigram; break;
    case ModelType::bpe: spec.joining = Joining::scores; break;
    default:
      config_error("{}: model_type {} is not accepted; accepted are UNIGRAM (1) and BPE (2)", name,
                   static_cast<int32_t>(trainer.type));
  }
  for (size_t id = 0; id < pieces.size(); ++id) {
    check(pieces[id], id, name);
    add_piece(pieces[id], spec, name);
    if (pieces[id].type == PieceType::user_defined) normalizer.kept.push_back(pieces[id].text);
  }
  if (spec.unknown < 0) config_error("{}: no piece is marked as the unknown one", name);
  if (!trainer.byte_fallback) spec.byte_tokens.clear();
  if (trainer.byte_fallback && spec.byte_tokens.size() != 256) {
    config_error("{}: byte_fallback needs 256 byte pieces, found {}", name, spec.byte_tokens.size());
  }
  const auto eos = static_cast<size_t>(trainer.eos_id);
  if (trainer.eos_id >= 0 && eos < pieces.size() && pieces[eos].type == PieceType::control) {
    spec.end_of_text = trainer.eos_id;
  }
  normalizer.dummy_suffix = trainer.whitespace_as_suffix;
  spec.normalizer.emplace_back(std::move(normalizer));
  return spec;
}

}  // namespace heddle::data
