// Words for groups of a layer's ops, as passes take them that treat what those ops make in a way of its own:
// "norm, attention:0-3, medium, expert_up>1.25".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/listing.h"
#include "heddle/passes/options/op_group.h"

namespace heddle::passes {

/// The meaning of a word: a group, or a level that stands for several.
struct GroupWord {
  std::string name;
  std::string meaning;
};
const std::vector<GroupWord>& group_words();

/// ":5" is layer 5 alone, ":0-3" four layers, ">1.25" a limit of rows; "" is nothing. `more`: words besides
/// group_words(). ConfigError "'…' is nothing to `purpose`" with what is accepted.
std::vector<OpGroup> parse_groups(std::string_view text, std::string_view purpose,
                                  const std::vector<std::string>& more = {});
/// Parses groups as parse_groups does, from these words alone.
std::vector<OpGroup> parse_words(std::string_view text, std::string_view purpose,
                                 const std::vector<std::string>& names);
/// The text that parse_groups reads as the same groups: "norm, gather:0-3".
std::string text_of(const std::vector<OpGroup>& groups);

/// The least limit of the groups that have this op, counted as one of `layer`; nothing where none has it. 0 where
/// one holds for any number of rows. `more` of parse_groups have none.
std::optional<double> limit_of(const std::vector<OpGroup>& groups, const ir::Op& op, int layer);
inline bool holds(const std::vector<OpGroup>& groups, const ir::Op& op, int layer) {
  return limit_of(groups, op, layer).has_value();
}

}  // namespace heddle::passes
