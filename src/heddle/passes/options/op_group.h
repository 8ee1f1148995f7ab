// A group of a layer's ops that a user names (passes/op_groups.h reads and writes the words).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "heddle/base/words.h"

namespace heddle::passes {

/// The groups, whose meanings stand in passes/op_groups.
enum class GroupName : uint8_t {
  norm,
  activation,
  gather,
  mla_up,
  attention,
  router,
  permute,
  expert_up,
  shared,
  mlp,
  moe,
  layer,
};
constexpr auto words_of(GroupName) {
  return std::to_array<Word<GroupName>>({{GroupName::norm, "norm"},
                                         {GroupName::activation, "activation"},
                                         {GroupName::gather, "gather"},
                                         {GroupName::mla_up, "mla_up"},
                                         {GroupName::attention, "attention"},
                                         {GroupName::router, "router"},
                                         {GroupName::permute, "permute"},
                                         {GroupName::expert_up, "expert_up"},
                                         {GroupName::shared, "shared"},
                                         {GroupName::mlp, "mlp"},
                                         {GroupName::moe, "moe"},
                                         {GroupName::layer, "layer"}});
}

/// Some of the groups.
class GroupSet {
 public:
  constexpr GroupSet() = default;
  constexpr GroupSet(std::initializer_list<GroupName> groups) {
    for (const GroupName group : groups) set(group);
  }
  constexpr bool has(GroupName group) const { return (bits_ >> static_cast<unsigned>(group) & 1U) != 0; }
  constexpr void set(GroupName group, bool there = true) {
    const auto bit = static_cast<uint16_t>(1U << static_cast<unsigned>(group));
    bits_ = static_cast<uint16_t>(there ? bits_ | bit : bits_ & ~bit);
  }
  constexpr bool empty() const { return bits_ == 0; }
  bool operator==(const GroupSet&) const = default;

 private:
  uint16_t bits_ = 0;
};

/// The ops of a group, or of a level, in layers first to last.
struct OpGroup {
  std::string name;  // one of group_words()
  int first_layer = 0, last_layer = std::numeric_limits<int>::max();
  double above = 0;  // only where more rows came to a layer's experts than this many times their even share
  bool operator==(const OpGroup&) const = default;
};

}  // namespace heddle::passes
