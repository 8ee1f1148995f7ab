// Trainers on thread ranks, for tests: the same call on each of them at once.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "heddle/base/random.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/train/controllers/controllers.h"
#include "heddle/train/parameters.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

class RankTrainers {
 public:
  /// `node_of`: the node that each rank stands for; empty: one for all. Controllers are compared after each step.
  explicit RankTrainers(TrainerOptions options, std::vector<int> node_of = {})
      : thread_worlds_(node_of.empty() ? std::vector<int>(static_cast<size_t>(options.plan.ranks()), 0)
                                       : std::move(node_of)) {
    for (int r = 0; r < thread_worlds_.size(); ++r) worlds_.push_back(thread_worlds_.world(r));
    trainers_.resize(worlds_.size());
    options.agree_every = 1;
    on_all([&](size_t r) { trainers_[r] = std::make_unique<Trainer>(options, worlds_[r].get()); });
  }
  int size() const { return thread_worlds_.size(); }
  Trainer& operator[](int rank) { return *trainers_[static_cast<size_t>(rank)]; }

  /// Calls `act` with each trainer on a thread of its own; the first failure is thrown.
  void each(const std::function<void(Trainer&)>& act) {
    on_all([&](size_t r) { act(*trainers_[r]); });
  }

  /// One step on every rank; what rank 0 got.
  StepResult step(const std::vector<std::vector<int32_t>>& sequences) {
    StepResult first;
    each([&](Trainer& trainer) {
      StepResult result = trainer.step(sequences);
      if (trainer.ranks().leads()) first = std::move(result);
    });
    return first;
  }

 private:
  void on_all(const std::function<void(size_t rank)>& act) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(trainers_.size());
    for (size_t r = 0; r < trainers_.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          act(r);
        } catch (const std::exception& error) {
          failures[r] = std::current_exception();
          thread_worlds_.abort(error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  comm::ThreadWorlds thread_worlds_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

/// `count` sequences of ids below `vocabulary`, functions of `seed`.
inline std::vector<std::vector<int32_t>> random_sequences(const Trainer& trainer, int64_t count, uint64_t seed) {
  std::vector<std::vector<int32_t>> sequences;
  const auto vocabulary = static_cast<uint64_t>(trainer.options().model.vocab_size);
  for (int64_t i = 0; i < count; ++i) {
    const RandomKey key = RandomKey(seed).with(static_cast<uint64_t>(i));
    std::vector<int32_t>& sequence = sequences.emplace_back();
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t) {
      sequence.push_back(static_cast<int32_t>(key.bits(static_cast<uint64_t>(t)) % vocabulary));
    }
  }
  return sequences;
}

}  // namespace heddle::train
