#include "heddle/data/tokenizer/files/tekken_file.h"

#include <nlohmann/json.hpp>

#include "heddle/data/tokenizer/files/json_node.h"

namespace heddle::data {
namespace {

constexpr int kMostTekkenDepth = 16;

// Special tokens of files that name none.
constexpr const char* kUnnamed[] = {"<unk>",
                                    "<s>",
                                    "</s>",
                                    "[INST]",
                                    "[/INST]",
                                    "[AVAILABLE_TOOLS]",
                                    "[/AVAILABLE_TOOLS]",
                                    "[TOOL_RESULTS]",
                                    "[/TOOL_RESULTS]",
                                    "[TOOL_CALLS]",
                                    "[IMG]",
                                    "<pad>",
                                    "[IMG_BREAK]",
                                    "[IMG_END]",
                                    "[PREFIX]",
                                    "[MIDDLE]",
                                    "[SUFFIX]",
                                    "[SYSTEM_PROMPT]",
                                    "[/SYSTEM_PROMPT]",
                                    "[TOOL_CONTENT]"};

}  // namespace

std::pair<std::string, std::string> tekken_as_tiktoken(std::string_view text, const std::string& name) {
  const nlohmann::json document = formats::parse_json(text, name, kMostTekkenDepth);
  const JsonNode root{&document, "$", &name};
  const JsonNode config = root.at("config"), vocabulary = root.at("vocab"), named = root.at("special_tokens");
  const TokenId all = config.at("default_vocab_size").token_id();
  const TokenId special = config.at("default_num_special_tokens").token_id();
  if (special > all || static_cast<size_t>(all - special) > vocabulary.array_size()) {
    vocabulary.refuse("{} tokens, of which {} are special, and there are {} others", all, special,
                      vocabulary.array_size());
  }
  std::string tokens;
  for (TokenId rank = 0; rank < all - special; ++rank) {
    const JsonNode token = vocabulary.at(static_cast<size_t>(rank));
    if (token.at("rank").token_id() != rank) token.at("rank").refuse("{} is expected", rank);
    tokens += fmt::format("{} {}\n", token.at("token_bytes").string(), special + rank);
  }
  std::vector<std::string> contents(static_cast<size_t>(special));
  for (size_t i = 0; named.is_null() && i < std::min(std::size(kUnnamed), contents.size()); ++i)
    contents[i] = kUnnamed[i];
  for (size_t i = 0; !named.is_null() && i < named.array_size(); ++i) {
    const JsonNode rank = named.at(i).at("rank");
    if (rank.token_id() >= special) rank.refuse("below {} is expected", special);
    contents[static_cast<size_t>(rank.token_id())] = named.at(i).at("token_str").string();
  }
  nlohmann::ordered_json added = nlohmann::ordered_json::object();
  for (size_t id = 0; id < contents.size(); ++id) {
    const std::string content = contents[id].empty() ? fmt::format("<SPECIAL_{}>", id) : contents[id];
    added[std::to_string(id)] = {{"content", content}, {"special", true}};
  }
  const nlohmann::ordered_json made{{"pat_str", config.at("pattern").string()}, {"added_tokens_decoder", added}};
  return {std::move(tokens), made.dump()};
}

}  // namespace heddle::data
