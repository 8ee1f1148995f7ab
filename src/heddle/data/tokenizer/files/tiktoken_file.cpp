#include "heddle/data/tokenizer/files/tiktoken_file.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/text.h"
#include "heddle/data/tokenizer/files/json_node.h"
#include "heddle/data/tokenizer/split_pattern.h"

namespace heddle::data {
namespace {

constexpr int kMostTiktokenDepth = 32;
constexpr size_t kMostPieceSteps = 1;
constexpr size_t kOfLlama4 = 200'000;  // tokens, in a file of the same name as Llama 3's

// How text is cut, as the encodings' publishers write it.
constexpr const char* kCutGpt2 =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char* kCutCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kCutO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kCutKimi =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Encoding {
  const char* name;  // of the file, without its ending
  const char* pattern;
  std::vector<std::pair<TokenId, const char*>> special;
};

const std::array<Encoding, 6>& encodings() {
  static const std::array<Encoding, 6> all{{
      {"r50k_base", kCutGpt2, {{50256, "<|endoftext|>"}}},
      {"p50k_base", kCutGpt2, {{50256, "<|endoftext|>"}}},
      {"cl100k_base",
       kCutCl100k,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {"o200k_base", kCutO200k, {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
      {"qwen", kSplitWordsQwen, {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
      {"kimi", kCutKimi, {}},
  }};
  return all;
}

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// False unless the text is base64 with its padding.
bool from_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  uint32_t held = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool pads = i >= text.size() - padding;
    const int digit = pads ? 0 : digit_of(text[i]);
    if (digit < 0) return false;
    held = held << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(held >> shift & 0xff);
    held = 0;
  }
  bytes.resize(bytes.size() - padding);
  return true;
}

void read_tokens(std::string_view text, const std::string& name, TokenizerSpec& spec) {
  std::string bytes;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (whole.empty()) continue;
    const size_t space = std::min(whole.find(' '), whole.size());
    const std::string_view number = space < whole.size() ? whole.substr(space + 1) : "";
    TokenId id = -1;
    const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), id);
    const bool is_number = error == std::errc() && rest == number.data() + number.size();
    if (!is_number || id < 0 || id >= kMostTokens || !from_base64(whole.substr(0, space), bytes) || bytes.empty() ||
        bytes.size() > kMostTokenBytes) {
      config_error("{}:{}: no line of a tiktoken file (base64, a space, an id below {}): '{}'", name, line,
                   kMostTokens, escaped(whole, 60));
    }
    const auto slot = static_cast<size_t>(id);
    if (slot >= spec.tokens.size()) spec.tokens.resize(slot + 1);
    if (!spec.tokens[slot].empty()) config_error("{}:{}: another token has the id {} too", name, line, id);
    spec.tokens[slot] = bytes;
  }
  spec.scores.resize(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) spec.scores[id] = -static_cast<double>(id);
}

void read_special(const JsonNode& list, TokenizerSpec& spec) {
  if (list.is_null()) return;
  if (!list.value->is_object()) list.refuse("an object is expected, found {}", formats::shown(*list.value));
  for (const auto& [key, value] : list.value->items()) {
    const JsonNode node{&value, list.path + "." + key, list.file};
    AddedToken added;
    const auto [rest, error] = std::from_chars(key.data(), key.data() + key.size(), added.id);
    if (error != std::errc() || rest != key.data() + key.size() || added.id < 0 || added.id >= kMostTokens) {
      list.refuse("a token id from 0 to {} is expected, found '{}'", kMostTokens - 1, key);
    }
    added.content = node.at("content").string();
    if (added.content.empty() || added.content.size() > kMostTokenBytes) {
      node.at("content").refuse("1 to {} bytes are expected, found {}", kMostTokenBytes, added.content.size());
    }
    added.special = node.at("special").boolean(true);
    spec.added.push_back(std::move(added));
  }
}

// Kimi's program names 256 ids behind the tokens; those that its configuration doesn't are reserved.
void add_reserved(TokenizerSpec& spec) {
  constexpr TokenId kReserved = 256;
  std::unordered_set<TokenId> known;
  for (const AddedToken& added : spec.added) known.insert(added.id);
  const auto first = static_cast<TokenId>(spec.tokens.size());
  for (TokenId id = first; id < first + kReserved; ++id) {
    if (!known.contains(id)) spec.added.push_back({id, fmt::format("<|reserved_token_{}|>", id)});
  }
}

// Meta's program names 256 ids behind the tokens of the file that it calls tokenizer.model (Llama 3.1's names).
void add_llama3(TokenizerSpec& spec) {
  constexpr TokenId kSpecial = 256;
  static const std::unordered_map<TokenId, const char*> kNamed{
      {0, "<|begin_of_text|>"},   {1, "<|end_of_text|>"},   {4, "<|finetune_right_pad_id|>"},
      {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {8, "<|eom_id|>"},
      {9, "<|eot_id|>"},          {10, "<|python_tag|>"}};
  const auto first = static_cast<TokenId>(spec.tokens.size());
  TokenId reserved = 0;
  for (TokenId i = 0; i < kSpecial; ++i) {
    const auto named = kNamed.find(i);
    spec.added.push_back({first + i, named != kNamed.end()
                                         ? std::string(named->second)
                                         : fmt::format("<|reserved_special_token_{}|>", reserved++)});
  }
}

}  // namespace

TokenizerSpec parse_tiktoken(std::string_view text, std::string_view config, const std::string& name) {
  TokenizerSpec spec;
  spec.joining = Joining::scores;
  spec.ignore_merges = true;
  read_tokens(text, name, spec);
  const std::string config_name = (std::filesystem::path(name).parent_path() / "tokenizer_config.json").string();
  const nlohmann::json document =
      config.empty() ? nlohmann::json::object() : formats::parse_json(config, config_name, kMostTiktokenDepth);
  const JsonNode root{&document, "$", &config_name};
  read_special(root.at("added_tokens_decoder"), spec);
  const JsonNode pattern = root.at("pat_str");
  const bool is_kimi = root.at("auto_map").value->dump().find("tokenization_kimi") != std::string::npos;
  const std::string stem = is_kimi ? "kimi" : std::filesystem::path(name).stem().string();
  std::string cut, place = name;
  if (!pattern.is_null()) {
    cut = pattern.string();
    place = pattern.place();
  } else if (std::filesystem::path(name).filename() == "tokenizer.model" && spec.tokens.size() < kOfLlama4 &&
             !is_kimi) {
    cut = kSplitWords;
    if (spec.added.empty()) add_llama3(spec);
  } else {
    std::vector<std::string> names;
    for (const Encoding& encoding : encodings()) {
      names.emplace_back(encoding.name);
      if (stem != encoding.name) continue;
      cut = encoding.pattern;
      if (!spec.added.empty()) continue;
      for (const auto& [id, content] : encoding.special) spec.added.push_back({id, content});
    }
    if (cut.empty()) {
      config_error(
          "{}: a tiktoken file doesn't say how text is cut: its name must be one of {} or Llama 3's "
          "tokenizer.model, or a "
          "tokenizer_config.json beside it have pat_str",
          name, fmt::join(names, ", "));
    }
    if (is_kimi) add_reserved(spec);
  }
  spec.steps = {split_at(SplitPattern::translated(cut), place)};
  return spec;
}

std::string tiktoken_config(const TokenizerSpec& spec) {
  HEDDLE_CHECK(spec.steps.size() == kMostPieceSteps, "a tiktoken file with {} patterns", spec.steps.size());
  nlohmann::ordered_json special = nlohmann::ordered_json::object();
  for (const AddedToken& added : spec.added) {
    special[fmt::format("{}", added.id)] = {{"content", added.content}, {"special", added.special}};
  }
  const nlohmann::ordered_json config{{"pat_str", std::get<SplitStep>(spec.steps[0]).pattern},
                                      {"added_tokens_decoder", special}};
  return config.dump(1) + "\n";
}

}  // namespace heddle::data
