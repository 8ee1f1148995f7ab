#include "heddle/ir/walk/fragments.h"

namespace heddle::ir {

Fragments::At Fragments::from(int64_t offset) const {
  const auto block = std::partition_point(blocks_.begin(), blocks_.end(), [&](const std::unique_ptr<Block>& b) {
    return b->held.back().offset < offset;
  });
  if (block == blocks_.end()) return end();
  const std::vector<Fragment>& held = (*block)->held;
  const auto at =
      std::partition_point(held.begin(), held.end(), [&](const Fragment& f) { return f.offset < offset; });
  return {static_cast<uint32_t>(block - blocks_.begin()), static_cast<uint32_t>(at - held.begin())};
}

Fragments::At Fragments::insert(At at, const Fragment& fragment) {
  ++size_;
  if (at.index == 0 && at.block > 0) {  // behind the last of the block before
    --at.block;
    at.index = static_cast<uint32_t>(blocks_[at.block]->held.size());
  }
  if (blocks_.empty()) {
    blocks_.push_back(std::make_unique<Block>());
    blocks_.back()->held.reserve(kMost);
  }
  if (blocks_[at.block]->held.size() == kMost) {
    constexpr uint32_t kHalf = kMost / 2;
    auto upper = std::make_unique<Block>();
    std::vector<Fragment>& lower = blocks_[at.block]->held;
    upper->held.reserve(kMost);
    upper->held.assign(lower.begin() + kHalf, lower.end());
    lower.resize(kHalf);
    blocks_[at.block]->runs.known = false;
    blocks_.insert(blocks_.begin() + at.block + 1, std::move(upper));
    if (at.index > kHalf) at = {at.block + 1, at.index - kHalf};
  }
  Block& block = *blocks_[at.block];
  block.held.insert(block.held.begin() + at.index, fragment);
  block.runs.known = false;
  return at;
}

Fragments::At Fragments::erase(At at) {
  --size_;
  Block& block = *blocks_[at.block];
  block.held.erase(block.held.begin() + at.index);
  block.runs.known = false;
  if (block.held.empty()) {
    blocks_.erase(blocks_.begin() + at.block);
    return {at.block, 0};
  }
  return at.index < block.held.size() ? at : At{at.block + 1, 0};
}

const Fragments::Runs& Fragments::runs_of(const Block& block) const {
  Runs& runs = block.runs;
  if (runs.known) return runs;
  runs = {.known = true};
  int64_t run = 0;
  bool is_first = true;
  for (size_t i = 0; i < block.held.size(); ++i) {
    if (i > 0 && block.held[i].offset != block.held[i - 1].end()) {
      is_first = false;
      run = 0;
    }
    run += block.held[i].bytes;
    if (is_first) runs.first = run;
    runs.longest = std::max(runs.longest, run);
  }
  runs.last = run;
  return runs;
}

}  // namespace heddle::ir
