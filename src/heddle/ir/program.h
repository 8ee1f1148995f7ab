// A training step as a program: listings, the blocks that run parts of them, and each rank's ordered actions.
//
// A block is a template: steps over one listing, or an interleaving of several, in enqueue order, bound to
// microbatches when it runs. What stays alive between the blocks of a microbatch follows from the uses of each
// value; nothing about it is kept by hand.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// The kind of a block, which tells the ops of a chunk that it holds. Sends stand behind what makes their operand.
/// Receives, and ops that may begin before their phase does (Op::ahead), are blocks of their own, so that a
/// schedule places them.
enum class BlockKind : uint8_t { begin, F, I, W, IW, receive_F, receive_I, fetch_F, fetch_I, fetch_W, end };
std::string_view name_of(BlockKind kind);

struct Step {
  uint8_t slot = 0;  // which of the block's (listing, microbatch) bindings
  uint32_t op = 0;   // index into the listing's ops
};

struct Block {
  /// The ways in which its steps may be rearranged (passes/weave). `none`: not at all. `free`: as their operands
  /// allow. `in_order`: so that only the weight gradients of a slot run beside the slots after it.
  enum class Mixing : uint8_t { none, free, in_order };
  std::string name;
  std::vector<int> listings;  // one a slot
  std::vector<Step> steps;
  Mixing mixing = Mixing::none;
};

/// One block run on one microbatch a slot. What is run once a step has microbatch -1.
struct Action {
  int block = 0;
  std::vector<int> microbatches;
};

/// The purposes that a program can be run for. `train`: a training step. `evaluate`: the losses of a batch.
/// `predict`: the logits of a sequence. `prefill` and `decode`: the same logits with a cache that keeps what
/// attention reads of each token. A whole sequence fills it (`prefill`). Single tokens of several sequences grow it
/// (`decode`). `restore`: makes what kernels read anew from the master weights, after those were set from outside.
/// `snapshot`: copies what a training step changes into memory that outlives the process. Each has listings of its
/// own, which share the weights of the training listings.
enum class Purpose : uint8_t { train, evaluate, predict, prefill, decode, restore, snapshot };
constexpr int kPurposes = 7;
std::string_view name_of(Purpose purpose);
/// True if it ends in the logits of next tokens, without losses.
constexpr bool ends_in_logits(Purpose purpose) {
  return purpose == Purpose::predict || purpose == Purpose::prefill || purpose == Purpose::decode;
}

struct StepProgram {
  std::vector<Listing> listings;
  std::vector<Block> blocks;
  using ActionLists = std::vector<std::vector<Action>>;  // one list a class of ranks that do the same
  std::array<ActionLists, kPurposes> actions;
  /// Training steps of fewer microbatches than the others have (a batch that grows), by their number.
  std::map<int, ActionLists> fewer;
  std::vector<int> class_of_rank{0};
  std::array<int, kPurposes> first_listing{};  // of each purpose's listings, one a class
  int microbatches = 1;

  /// Empty when the program has no actions for the purpose. `of_microbatches`: of a training step, 0 for all.
  const std::vector<Action>& actions_of(int rank, Purpose purpose = Purpose::train, int of_microbatches = 0) const;
  /// The listing that a rank runs for a purpose that the program has.
  int listing_of(int rank, Purpose purpose) const {
    return first_listing[static_cast<size_t>(purpose)] + class_of_rank.at(static_cast<size_t>(rank));
  }
  /// True if some listing has an input of that name.
  bool takes(std::string_view input) const;
  /// The listings that a rank's actions touch, for any purpose, in order.
  std::vector<int> listings_of(int rank) const;
};

/// The ops of a chunk that a block of this kind holds, in list order. The end is that of all chunks.
Block make_block(const StepProgram& program, int listing, BlockKind kind, int chunk = 0);

/// Blocks one after the other, their slots side by side. Each is of one slot.
Block joined(const std::vector<Block>& blocks);
/// Its slots as blocks of their own.
std::vector<Block> parted(const Block& block);

/// The beginning of the step woven with the first forward of a chunk (slots: -1, microbatch): communication comes
/// first. Each computation of the beginning, and what waits for it, comes right before the op that needs it, so
/// that weights arrive under the layers before. What the forward fetches ahead stands at its front.
Block make_first_block(const StepProgram& program, int listing, int chunk = 0);

}  // namespace heddle::ir
