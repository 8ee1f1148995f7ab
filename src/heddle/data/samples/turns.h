// The messages of a conversation in the forms in which data sets hold them, made into those that templates know.
//
//   {"role": "user", "content": "…"}          as Transformers, TRL and OpenAI have them
//   {"from": "human", "value": "…"}           ShareGPT's, with gpt, system, function_call, observation
//
// A content may be a list of parts that are texts; they are joined where the template takes no parts.
// LLaMA-Factory's parts may be thoughts and calls too. "weight": 0 and "train": false of a message say that its
// answer is not learnt. OpenAI's older "function_call" becomes a tool call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heddle::data {

struct Turns {
  using Json = nlohmann::ordered_json;

  Json messages = Json::array();
  std::vector<bool> silent;  // of each: its answer is not learnt

  size_t size() const { return messages.size(); }
  void add(const Turns& more);
  void add(std::string_view role, Json content);
  bool any_silent() const;
};

/// True if it is a list of objects that say who speaks, or one such object.
bool are_turns(const nlohmann::ordered_json& json);
/// ConfigError without a place for what cannot be read, naming the message. `key` is where they stand;
/// `takes_parts` the roles whose content the template takes in parts.
Turns read_turns(const nlohmann::ordered_json& json, const std::string& key,
                 const std::vector<std::string>& takes_parts);
/// The tools of a sample, which may stand there as JSON text: a list, or null. `functions`: OpenAI's older form.
nlohmann::ordered_json read_tools(const nlohmann::ordered_json& json, const std::string& key, bool functions);

}  // namespace heddle::data
