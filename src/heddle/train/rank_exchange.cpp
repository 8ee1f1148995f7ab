#include "heddle/train/rank_exchange.h"

#include <numeric>

#include "heddle/comm/world.h"

namespace heddle::train {

namespace {

using comm::Piece;

constexpr int64_t kNumber = sizeof(double);

}  // namespace

RankExchange::RankExchange(comm::World* world) {
  if (world == nullptr || world->size() == 1) return;
  rank_ = world->rank();
  size_ = world->size();
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  communicator_ = world->communicator(all, "comm.between_steps");
}

RankExchange::~RankExchange() = default;

void RankExchange::sum(std::span<double> values) {
  if (size_ == 1 || values.empty()) return;
  const int64_t bytes = std::ssize(values) * kNumber;
  const Piece whole{0, 0, bytes};
  std::vector<double> all(leads() ? values.size() * static_cast<size_t>(size_) : 0);
  std::vector<Piece> from_all, to_all;
  for (int r = 0; r < size_ && leads(); ++r) {
    from_all.push_back({r, r * bytes, bytes});
    to_all.push_back({r, 0, bytes});
  }
  communicator_->exchange(values.data(), {&whole, 1}, all.data(), from_all);
  std::vector<double> sums(leads() ? values.size() : 0);
  for (size_t i = 0; i < all.size(); ++i) sums[i % values.size()] += all[i];
  communicator_->exchange(sums.data(), to_all, values.data(), {&whole, 1});
}

bool RankExchange::any(bool mine) {
  double count = mine ? 1 : 0;
  sum({&count, 1});
  return count > 0;
}

std::vector<std::string> RankExchange::share(const std::string& mine) {
  std::vector<std::string> texts{mine};
  if (size_ == 1) return texts;
  std::vector<double> lengths(static_cast<size_t>(size_), 0);
  lengths[rank_] = static_cast<double>(mine.size());
  sum(lengths);
  std::vector<Piece> sends, receives;
  int64_t total = 0;
  for (int r = 0; r < size_; ++r) {
    const auto length = static_cast<int64_t>(lengths[r]);
    sends.push_back({r, 0, std::ssize(mine)});
    receives.push_back({r, total, length});
    total += length;
  }
  std::string joined(static_cast<size_t>(total), '\0');
  communicator_->exchange(mine.data(), sends, joined.data(), receives);
  texts.clear();
  for (const Piece& piece : receives) {
    texts.push_back(joined.substr(static_cast<size_t>(piece.offset), static_cast<size_t>(piece.bytes)));
  }
  return texts;
}

}  // namespace heddle::train
