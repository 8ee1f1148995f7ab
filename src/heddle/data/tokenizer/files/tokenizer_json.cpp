#include "heddle/data/tokenizer/files/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/tokenizer/byte_alphabet.h"
#include "heddle/data/tokenizer/files/json_node.h"
#include "heddle/data/tokenizer/files/tokenizer_json_steps.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {
namespace {

using PlainJson = nlohmann::json;

constexpr int64_t kMostFileBytes = kMostTokenizerBytes;
constexpr int kMostTokenizerDepth = 32;

PlainJson parse_bounded(std::string_view text, const std::string& name) {
  if (text.size() > static_cast<size_t>(kMostFileBytes)) {
    config_error("{}: {} bytes, at most {} are read", name, text.size(), kMostFileBytes);
  }
  return formats::parse_json(text, name, kMostTokenizerDepth);
}

void read_added_tokens(const JsonNode& list, TokenizerSpec& spec) {
  if (list.is_null()) return;
  for (size_t i = 0; i < list.array_size(); ++i) {
    const JsonNode node = list.at(i);
    AddedToken added;
    added.id = node.at("id").token_id();
    added.content = node.at("content").string();
    if (added.content.empty() || added.content.size() > kMostTokenBytes) {
      node.at("content").refuse("1 to {} bytes are expected, found {}", kMostTokenBytes, added.content.size());
    }
    added.special = node.at("special").boolean(false);
    added.normalized = node.at("normalized").boolean(false);
    added.lstrip = node.at("lstrip").boolean(false);
    added.rstrip = node.at("rstrip").boolean(false);
    if (node.at("single_word").boolean(false)) node.at("single_word").refuse("true is not accepted");
    spec.added.push_back(std::move(added));
  }
}

void refuse_unknown_options(const JsonNode& model) {
  const JsonNode dropout = model.at("dropout");
  if (!dropout.is_null() && !(dropout.value->is_number() && dropout.value->get<double>() == 0)) {
    dropout.refuse("only null is accepted, found {}", formats::shown(*dropout.value));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode node = model.at(key);
    if (!node.is_null() && !node.string().empty())
      node.refuse("only null is accepted, found {}", formats::shown(*node.value));
  }
}

// The tokens <0x00> to <0xFF>, which spell what is no token.
void read_byte_fallback(const JsonNode& node, const std::unordered_map<std::string_view, TokenId>& ids,
                        TokenizerSpec& spec) {
  if (spec.of_bytes || !node.boolean(false) || !ids.contains("<0x00>")) return;
  for (int byte = 0; byte < 256; ++byte) {
    const auto at = ids.find(fmt::format("<0x{:02X}>", byte));
    if (at == ids.end()) node.refuse("true needs the tokens <0x00> to <0xFF>, and <0x{:02X}> is not there", byte);
    spec.byte_tokens.push_back(at->second);
  }
}

// True if some byte of a byte-level vocabulary is no token, as where it was trained without the alphabet.
bool lacks_bytes(const TokenizerSpec& spec) {
  std::array<bool, 256> known{};
  for (const std::string& token : spec.tokens) {
    if (token.size() == 1) known[static_cast<uint8_t>(token[0])] = true;
  }
  return std::find(known.begin(), known.end(), false) != known.end();
}

void read_unigram(const JsonNode& model, TokenizerSpec& spec) {
  spec.joining = Joining::unigram;
  if (spec.of_bytes) model.at("type").refuse("'Unigram' after ByteLevel is not accepted");
  const JsonNode vocabulary = model.at("vocab");
  std::unordered_map<std::string_view, TokenId> ids;
  for (size_t i = 0; i < vocabulary.array_size(); ++i) {
    const PlainJson& entry = (*vocabulary.value)[i];
    if (i >= static_cast<size_t>(kMostTokens)) vocabulary.refuse("more than {} tokens", kMostTokens);
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      vocabulary.at(i).refuse("a token with its score is expected, found {}", formats::shown(entry));
    }
    const std::string& text = entry[0].get_ref<const std::string&>();
    if (text.empty() || text.size() > kMostTokenBytes) {
      vocabulary.at(i).refuse("1 to {} bytes are expected, found {}", kMostTokenBytes, text.size());
    }
    spec.tokens.push_back(text);
    spec.scores.push_back(entry[1].get<double>());
    ids.emplace(text, static_cast<TokenId>(i));
  }
  const JsonNode unknown = model.at("unk_id");
  spec.unknown = unknown.token_id();
  if (static_cast<size_t>(spec.unknown) >= spec.tokens.size()) unknown.refuse("{} is no token", spec.unknown);
  spec.fuse_unknown = true;
  read_byte_fallback(model.at("byte_fallback"), ids, spec);
}

void read_pairs(const JsonNode& model, TokenizerSpec& spec) {
  spec.fuse_unknown = model.at("fuse_unk").boolean(false);
  spec.ignore_merges = model.at("ignore_merges").boolean(false);
  const JsonNode vocabulary = model.at("vocab");
  if (!vocabulary.value->is_object())
    vocabulary.refuse("an object is expected, found {}", formats::shown(*vocabulary.value));
  std::unordered_map<std::string_view, TokenId> added_ids;
  for (const AddedToken& added : spec.added) added_ids.emplace(added.content, added.id);
  std::unordered_map<std::string_view, TokenId> ids;  // by the text in the file
  std::vector<std::string_view> text_of;              // the file's text of each id
  std::string bytes;
  for (const auto& [text, value] : vocabulary.value->items()) {
    // The path is only spelt out for a complaint: vocabularies are long.
    const auto entry = [&, &text = text, &value = value] {
      return JsonNode{&value, fmt::format("model.vocab[{}]", formats::shown(PlainJson(text))), vocabulary.file};
    };
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(kMostTokens))
      entry().token_id();
    const auto id = static_cast<TokenId>(value.get<uint64_t>());
    const auto slot = static_cast<size_t>(id);
    if (slot >= spec.tokens.size()) {
      spec.tokens.resize(slot + 1);
      text_of.resize(slot + 1);
    }
    if (text_of[slot].data() != nullptr) entry().refuse("another token has the id {} too", id);
    text_of[slot] = text;
    const auto added = added_ids.find(text);
    const bool is_added = added != added_ids.end();
    if (is_added && added->second != id) {
      entry().refuse("the same token is in added_tokens with the id {}", added->second);
    }
    if (text.size() > kMostTokenBytes)
      entry().refuse("at most {} bytes are expected, found {}", kMostTokenBytes, text.size());
    if (!spec.of_bytes) {
      spec.tokens[slot] = text;
    } else if (byte_alphabet::to_bytes(text, bytes)) {
      spec.tokens[slot] = bytes;
    } else {
      continue;  // found as a whole where it is added, and otherwise never: no merging makes it
    }
    ids.emplace(text, id);
  }
  for (const AddedToken& added : spec.added) {
    const auto slot = static_cast<size_t>(added.id);
    if (slot < text_of.size() && text_of[slot].data() != nullptr && text_of[slot] != added.content) {
      vocabulary.refuse("id {} is a token here and '{}' in added_tokens", added.id, added.content);
    }
  }
  read_byte_fallback(model.at("byte_fallback"), ids, spec);
  const JsonNode unknown = model.at("unk_token");
  if (!unknown.is_null() && (!spec.of_bytes || lacks_bytes(spec))) {
    const auto at = ids.find(unknown.string());
    if (at == ids.end()) unknown.refuse("'{}' is not in model.vocab", unknown.string());
    spec.unknown = at->second;
  }

  const JsonNode merges = model.at("merges");
  spec.merges.reserve(std::min<size_t>(merges.array_size(), static_cast<size_t>(kMostTokens)));
  for (size_t i = 0; i < merges.array_size(); ++i) {
    const PlainJson& merge = (*merges.value)[i];
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        merges.at(i).refuse("two tokens with a space between are expected, found {}", formats::shown(merge));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      merges.at(i).refuse("\"a b\" or [\"a\", \"b\"] is expected, found {}", formats::shown(merge));
    }
    const auto a = ids.find(left), b = ids.find(right);
    if (a == ids.end() || b == ids.end())
      merges.at(i).refuse("{} names what is not in model.vocab", formats::shown(merge));
    spec.merges.emplace_back(a->second, b->second);
  }
}

void read_model(const JsonNode& model, TokenizerSpec& spec) {
  const JsonNode type = model.at("type");
  // Old files lack the type; their merges show it.
  const std::string name = type.is_null() && !model.at("merges").is_null() ? "BPE" : type.string();
  refuse_unknown_options(model);
  if (name == "BPE") return read_pairs(model, spec);
  if (name == "Unigram") return read_unigram(model, spec);
  type.refuse("'{}' is not accepted{}; accepted are BPE, Unigram", name, did_you_mean(name, {"BPE", "Unigram"}));
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name) {
  const PlainJson document = parse_bounded(text, name);
  const JsonNode root{&document, "$", &name};
  TokenizerSpec spec;
  read_normalizer(root.at("normalizer"), spec);
  read_added_tokens(root.at("added_tokens"), spec);
  const JsonNode pre_tokenizer = root.at("pre_tokenizer");
  read_pre_tokenizer(pre_tokenizer, spec);
  const JsonNode decoder = root.at("decoder");
  if (!spec.of_bytes && !decoder.is_null() && decoder.at("type").string() == "ByteLevel") {
    pre_tokenizer.refuse("it must end with ByteLevel, as the decoder begins");
  }
  read_decoder(decoder, spec);
  read_post_processor(root.at("post_processor"), spec);
  read_model(root.at("model"), spec);
  if (!spec.of_bytes && spec.byte_tokens.empty() && spec.unknown < 0) {
    pre_tokenizer.refuse(
        "without ByteLevel at its end model.byte_fallback or model.unk_token is needed: what is no token would be "
        "dropped");
  }
  return spec;
}

std::string tokenizer_json(const TokenizerSpec& spec) {
  HEDDLE_CHECK(spec.joining == Joining::merges && spec.of_bytes && spec.normalizer.empty() && spec.before.empty() &&
                   spec.after.empty(),
               "only byte-level merges are written");
  using Ordered = nlohmann::ordered_json;
  Ordered root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = Ordered::array();
  for (const AddedToken& added : spec.added) {
    root["added_tokens"].push_back({{"id", added.id},
                                    {"content", added.content},
                                    {"single_word", false},
                                    {"lstrip", added.lstrip},
                                    {"rstrip", added.rstrip},
                                    {"normalized", added.normalized},
                                    {"special", added.special}});
  }
  root["normalizer"] = nullptr;
  // A prefix space comes before ByteLevel's own pattern.
  const bool prefix_space = !spec.steps.empty() && std::holds_alternative<PrefixSpaceStep>(spec.steps[0]);
  Ordered steps = Ordered::array();
  for (size_t i = prefix_space ? 1 : 0; i < spec.steps.size(); ++i) {
    const auto* split = std::get_if<SplitStep>(&spec.steps[i]);
    HEDDLE_CHECK(split != nullptr && split->behavior == SplitStep::Behavior::isolated,
                 "no file form for these steps");
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", split->pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  const Ordered byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", true}, {"use_regex", false}};
  steps.push_back(byte_level);
  if (prefix_space) {
    const auto* split = spec.steps.size() == 2 ? std::get_if<SplitStep>(&spec.steps[1]) : nullptr;
    HEDDLE_CHECK(split != nullptr && split->pattern == kSplitWordsGpt2, "no file form for a prefix space here");
    steps = Ordered::array({byte_level});
    steps[0]["use_regex"] = true;
  }
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  root["post_processor"] = nullptr;
  root["decoder"] = byte_level;
  Ordered model = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", spec.ignore_merges}};
  // An ordered object finds keys by walking, so the long vocabulary is filled without looking.
  Ordered::object_t vocabulary;
  vocabulary.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty()) {
      vocabulary.Container::emplace_back(byte_alphabet::of_bytes(spec.tokens[id]), static_cast<int64_t>(id));
    }
  }
  model["vocab"] = std::move(vocabulary);
  Ordered merges = Ordered::array();
  for (const auto& [left, right] : spec.merges) {
    merges.push_back(byte_alphabet::of_bytes(spec.tokens.at(static_cast<size_t>(left))) + " " +
                     byte_alphabet::of_bytes(spec.tokens.at(static_cast<size_t>(right))));
  }
  model["merges"] = std::move(merges);
  root["model"] = std::move(model);
  return root.dump(1, ' ', false) + "\n";
}

void write_tokenizer(const std::string& path, const TokenizerSpec& spec) { write_file(path, tokenizer_json(spec)); }

}  // namespace heddle::data
