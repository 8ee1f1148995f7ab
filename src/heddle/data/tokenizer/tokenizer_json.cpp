#include "heddle/data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/utf8.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostFileBytes = 64 << 20;
constexpr int kMostDepth = 32;
constexpr size_t kMostSplits = 16;

// GPT-2's alphabet: bytes that print stand for themselves in Latin-1, the others follow from U+0100 on.
struct ByteAlphabet {
  std::array<std::string, 256> character;
  std::unordered_map<uint32_t, uint8_t> byte;

  ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t code_point = prints ? b : next++;
      append_utf8(character[b], code_point);
      byte[code_point] = static_cast<uint8_t>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet value;
  return value;
}

// False if `text` has a character outside the alphabet.
bool to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const auto found = alphabet().byte.find(next_code_point(text, at));
    if (found == alphabet().byte.end()) return false;
    bytes.push_back(static_cast<char>(found->second));
  }
  return true;
}

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += alphabet().character[static_cast<uint8_t>(c)];
  return text;
}

// A value of the document together with its path, so that each complaint can name it.
struct Node {
  const Json* value;
  std::string path;
  const std::string* file;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    config_error("{}: {}: {}", *file, escaped(path, 200), escaped(fmt::format(text, std::forward<Args>(args)...)));
  }
  // The member, or a null value if there is none.
  Node at(const char* key) const {
    static const Json null;
    if (!value->is_object()) refuse("an object is expected, found {}", formats::shown(*value));
    const auto found = value->find(key);
    return {found == value->end() ? &null : &*found, path == "$" ? std::string(key) : path + "." + key, file};
  }
  Node at(size_t index) const { return {&(*value)[index], fmt::format("{}[{}]", path, index), file}; }

  bool is_null() const { return value->is_null(); }
  size_t array_size() const {
    if (!value->is_array()) refuse("an array is expected, found {}", formats::shown(*value));
    return value->size();
  }
  const std::string& string() const {
    if (!value->is_string()) refuse("a string is expected, found {}", formats::shown(*value));
    return value->get_ref<const std::string&>();
  }
  bool boolean(bool otherwise) const {
    if (is_null()) return otherwise;
    if (!value->is_boolean()) refuse("true or false is expected, found {}", formats::shown(*value));
    return value->get<bool>();
  }
  TokenId token_id() const {
    // Compared unsigned, so that no number wraps.
    if (!value->is_number_unsigned() || value->get<uint64_t>() >= static_cast<uint64_t>(kMostTokens)) {
      refuse("a token id from 0 to {} is expected, found {}", kMostTokens - 1, formats::shown(*value));
    }
    return static_cast<TokenId>(value->get<uint64_t>());
  }
  void must_be_absent(const char* why) const {
    if (!is_null()) refuse("{} (found {})", why, formats::shown(*value));
  }
};

Json parse_bounded(std::string_view text, const std::string& name) {
  if (text.size() > static_cast<size_t>(kMostFileBytes)) {
    config_error("{}: {} bytes, at most {} are read", name, text.size(), kMostFileBytes);
  }
  return formats::parse_json(text, name, kMostDepth);
}

void read_pre_tokenizer(const Node& node, TokenizerSpec& spec, bool& byte_level, int depth) {
  if (byte_level) node.refuse("nothing may follow ByteLevel");
  const Node type = node.at("type");
  const std::string& name = type.string();
  const auto add_split = [&](std::string pattern, const Node& place) {
    if (spec.splits.size() == kMostSplits) place.refuse("more than {} splits", kMostSplits);
    spec.splits.push_back(std::move(pattern));
    spec.split_places.push_back(*place.file + ": " + place.path);
  };
  if (name == "Sequence") {
    if (depth > 0) type.refuse("a Sequence within a Sequence is not accepted");
    const Node list = node.at("pretokenizers");
    for (size_t i = 0; i < list.array_size(); ++i) read_pre_tokenizer(list.at(i), spec, byte_level, depth + 1);
  } else if (name == "Split") {
    const Node behavior = node.at("behavior");
    if (behavior.string() != "Isolated")
      behavior.refuse("'{}' is not accepted, only 'Isolated'", behavior.string());
    node.at("invert").boolean(false);  // pieces and gaps are both kept apart, so either way is the same
    const Node pattern = node.at("pattern");
    const Node regex = pattern.at("Regex"), literal = pattern.at("String");
    if (regex.is_null() == literal.is_null()) pattern.refuse("one of 'Regex' and 'String' is expected");
    if (regex.is_null()) {
      if (literal.string().empty()) literal.refuse("the string to split at is empty");
      add_split(SplitPattern::literally(literal.string()), literal);
    } else {
      const std::string reason = SplitPattern::differs_from_oniguruma(regex.string());
      if (!reason.empty()) regex.refuse("the pattern is not accepted: {}", reason);
      add_split(regex.string(), regex);
    }
  } else if (name == "Digits") {
    add_split(node.at("individual_digits").boolean(false) ? "\\p{N}" : "\\p{N}+", node);
  } else if (name == "ByteLevel") {
    byte_level = true;
    spec.add_prefix_space = node.at("add_prefix_space").boolean(true);
    if (spec.add_prefix_space && !spec.splits.empty()) {
      node.at("add_prefix_space").refuse("true after a Split is not accepted");
    }
    if (node.at("use_regex").boolean(true)) add_split(kSplitWordsGpt2, node);
  } else {
    type.refuse("'{}' is not accepted{}; accepted are Sequence, Split, Digits, ByteLevel", name,
                did_you_mean(name, {"Sequence", "Split", "Digits", "ByteLevel"}));
  }
}

void read_added_tokens(const Node& list, TokenizerSpec& spec) {
  if (list.is_null()) return;
  for (size_t i = 0; i < list.array_size(); ++i) {
    const Node node = list.at(i);
    AddedToken added;
    added.id = node.at("id").token_id();
    added.content = node.at("content").string();
    if (added.content.empty() || added.content.size() > kMostTokenBytes) {
      node.at("content").refuse("1 to {} bytes are expected, found {}", kMostTokenBytes, added.content.size());
    }
    added.special = node.at("special").boolean(false);
    added.normalized = node.at("normalized").boolean(false);
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (node.at(key).boolean(false)) node.at(key).refuse("true is not accepted");
    }
    spec.added.push_back(std::move(added));
  }
}

void read_model(const Node& model, TokenizerSpec& spec) {
  const Node type = model.at("type");
  // Old files lack the type; they are told by their merges.
  if (!(type.is_null() && !model.at("merges").is_null()) && type.string() != "BPE") {
    type.refuse("'{}' is not accepted, only 'BPE'", type.string());
  }
  const Node dropout = model.at("dropout");
  if (!dropout.is_null() && !(dropout.value->is_number() && dropout.value->get<double>() == 0)) {
    dropout.refuse("only null is accepted, found {}", formats::shown(*dropout.value));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Node node = model.at(key);
    if (!node.is_null() && !node.string().empty())
      node.refuse("only null is accepted, found {}", formats::shown(*node.value));
  }
  if (model.at("byte_fallback").boolean(false)) model.at("byte_fallback").refuse("true is not accepted");
  model.at("fuse_unk").boolean(false);  // no text is unknown to a byte-level vocabulary
  spec.ignore_merges = model.at("ignore_merges").boolean(false);

  const Node vocabulary = model.at("vocab");
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
      return Node{&value, fmt::format("model.vocab[{}]", formats::shown(Json(text))), vocabulary.file};
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
    if (text.empty() || text.size() > kMostTokenBytes) {
      entry().refuse("1 to {} bytes are expected, found {}", kMostTokenBytes, text.size());
    }
    if (!to_bytes(text, bytes)) {
      if (is_added) continue;  // found as a whole, never by merging
      entry().refuse("has a character that is none of the byte-level alphabet");
    }
    spec.tokens[slot] = bytes;
    ids.emplace(text, id);
  }
  for (const AddedToken& added : spec.added) {
    const auto slot = static_cast<size_t>(added.id);
    if (slot < text_of.size() && text_of[slot].data() != nullptr && text_of[slot] != added.content) {
      vocabulary.refuse("id {} is a token here and '{}' in added_tokens", added.id, added.content);
    }
  }

  const Node merges = model.at("merges");
  spec.merges.reserve(std::min<size_t>(merges.array_size(), static_cast<size_t>(kMostTokens)));
  for (size_t i = 0; i < merges.array_size(); ++i) {
    const Json& merge = (*merges.value)[i];
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

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name) {
  const Json document = parse_bounded(text, name);
  const Node root{&document, "$", &name};
  TokenizerSpec spec;
  root.at("truncation").must_be_absent("truncation is not accepted, only null");
  root.at("padding").must_be_absent("padding is not accepted, only null");
  const Node normalizer = root.at("normalizer");
  if (!normalizer.is_null()) {
    const Node type = normalizer.at("type");
    const bool empty = type.string() == "Sequence" && normalizer.at("normalizers").array_size() == 0;
    if (!empty) type.refuse("'{}' is not accepted, only null or an empty Sequence", type.string());
  }
  read_added_tokens(root.at("added_tokens"), spec);
  const Node pre_tokenizer = root.at("pre_tokenizer");
  if (pre_tokenizer.is_null()) pre_tokenizer.refuse("a byte-level one is expected, found null");
  bool byte_level = false;
  read_pre_tokenizer(pre_tokenizer, spec, byte_level, 0);
  if (!byte_level) pre_tokenizer.refuse("it must end with ByteLevel");
  const Node decoder = root.at("decoder");
  if (!decoder.is_null() && decoder.at("type").string() != "ByteLevel") {
    decoder.at("type").refuse("'{}' is not accepted, only 'ByteLevel'", decoder.at("type").string());
  }
  read_model(root.at("model"), spec);
  return spec;
}

std::string tokenizer_json(const TokenizerSpec& spec) {
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
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", added.normalized},
                                    {"special", added.special}});
  }
  root["normalizer"] = nullptr;
  Ordered steps = Ordered::array();
  for (const std::string& split : spec.splits) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", split}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  const Ordered byte_level = {{"type", "ByteLevel"},
                              {"add_prefix_space", spec.add_prefix_space},
                              {"trim_offsets", true},
                              {"use_regex", false}};
  steps.push_back(byte_level);
  // GPT-2's: the prefix space comes before the split, which only ByteLevel's own pattern allows.
  if (spec.add_prefix_space && !spec.splits.empty()) {
    HEDDLE_CHECK(spec.splits.size() == 1 && spec.splits[0] == kSplitWordsGpt2,
                 "no file form for a prefix space here");
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
      vocabulary.Container::emplace_back(to_alphabet(spec.tokens[id]), static_cast<int64_t>(id));
    }
  }
  model["vocab"] = std::move(vocabulary);
  Ordered merges = Ordered::array();
  for (const auto& [left, right] : spec.merges) {
    merges.push_back(to_alphabet(spec.tokens.at(static_cast<size_t>(left))) + " " +
                     to_alphabet(spec.tokens.at(static_cast<size_t>(right))));
  }
  model["merges"] = std::move(merges);
  root["model"] = std::move(model);
  return root.dump(1, ' ', false) + "\n";
}

TokenizerSpec read_tokenizer(const std::string& path) {
  return parse_tokenizer_json(read_file(path, kMostFileBytes), path);
}

void write_tokenizer(const std::string& path, const TokenizerSpec& spec) { write_file(path, tokenizer_json(spec)); }

}  // namespace heddle::data
