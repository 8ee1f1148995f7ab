// Distribution of an attention call over threads.
//
// While there are at least as many units left as threads, each thread takes whole units: it packs the keys and uses
// them while they are warm. The whole team shares the units left over (fewer than threads). Forward it cuts them by
// blocks of queries. Backward it cuts them by waves, the pairs (key block j, query block i) with i + j the same,
// which share no sum. Each sum thus has one order in both ways, so the number of threads never changes a bit of the
// result.
#include <omp.h>

#include <algorithm>

#include "heddle/kernels/host/attention/attention_problem.h"

namespace heddle::kernels::host::attention {
namespace {

/// An upper bound that is the same when scratch is sized and when the kernel runs.
int64_t most_threads() {
  static const int64_t processors = std::max(1, omp_get_num_procs());
  return processors;
}

int64_t slots(const Problem& problem) { return std::min(problem.units(), most_threads()); }

template <class Path>
struct Regions {
  Regions(const Problem& problem, const Path& path, std::byte* scratch)
      : shared_bytes(path.shared_bytes(problem)),
        thread_bytes(path.thread_bytes(problem)),
        threads(scratch ? scratch + slots(problem) * shared_bytes : nullptr),
        shared(scratch) {}
  int64_t total(const Problem& problem) const {
    return slots(problem) * shared_bytes + (slots(problem) ? most_threads() * thread_bytes : 0);
  }
  std::byte* shared_of(int64_t slot) const { return shared + slot * shared_bytes; }
  std::byte* thread_of(int64_t thread) const { return threads + thread * thread_bytes; }

  int64_t shared_bytes, thread_bytes;
  std::byte *threads, *shared;
};

int team_size() { return static_cast<int>(std::min<int64_t>(omp_get_max_threads(), most_threads())); }

}  // namespace

int64_t scratch_bytes(const Problem& problem, const ForwardPath& path) {
  return Regions<ForwardPath>(problem, path, nullptr).total(problem);
}

int64_t scratch_bytes(const Problem& problem, const BackwardPath& path) {
  return Regions<BackwardPath>(problem, path, nullptr).total(problem);
}

void run(const Problem& problem, const Operands& operands, const ForwardPath& path, std::byte* scratch) {
  if (problem.units() == 0) return;
  const Regions<ForwardPath> regions(problem, path, scratch);
  const int64_t query_steps = problem.query_steps(), blocks = divide_up(query_steps, path.steps_per_block);
  const int64_t key_steps = problem.key_steps(), key_blocks = divide_up(key_steps, path.steps_per_block);
  const int64_t members = problem.heads_per_unit();
#pragma omp parallel num_threads(team_size())
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    const int64_t whole = problem.units() / team * team, left = problem.units() - whole;
    std::byte* const mine = regions.thread_of(me);
#pragma omp for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < whole; ++unit) {
      Task task{problem, operands, unit, regions.shared_of(me), mine};
      path.pack_keys(task, 0, key_steps);
      task.next = {unit + team < whole ? unit + team : -1, 0, members * blocks};
      for (int64_t member = 0; member < members; ++member) {
        for (int64_t block = 0; block < blocks; ++block, ++task.next.share) path.attend(task, member, block);
      }
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < left * key_blocks; ++item) {
      const int64_t slot = item / key_blocks, first = item % key_blocks * path.steps_per_block;
      const Task task{problem, operands, whole + slot, regions.shared_of(slot), mine};
      path.pack_keys(task, first, std::min(first + path.steps_per_block, key_steps));
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < left * members * blocks; ++item) {
      const int64_t block = blocks - 1 - item / (left * members);  // the longest first
      const int64_t slot = item % left, member = item / left % members;
      path.attend(Task{problem, operands, whole + slot, regions.shared_of(slot), mine}, member, block);
    }
  }
}

void run(const Problem& problem, const Operands& operands, const BackwardPath& path, std::byte* scratch) {
  if (problem.units() == 0) return;
  const Regions<BackwardPath> regions(problem, path, scratch);
  const int64_t query_steps = problem.query_steps(), blocks = divide_up(query_steps, path.steps_per_block);
  const int64_t key_steps = problem.key_steps(), key_blocks = divide_up(key_steps, path.steps_per_block);
  const int64_t members = problem.heads_per_unit();
  const auto first_queries = [&](int64_t key_block) {
    return problem.first_query_block(key_block, path.steps_per_block);
  };
  const auto end_queries = [&](int64_t unit, int64_t key_block) {
    return problem.end_query_block(unit, key_block, path.steps_per_block, blocks);
  };
#pragma omp parallel num_threads(team_size())
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    const int64_t whole = problem.units() / team * team, left = problem.units() - whole;
    std::byte* const mine = regions.thread_of(me);
#pragma omp for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < whole; ++unit) {
      Task task{problem, operands, unit, regions.shared_of(me), mine};
      path.pack_keys(task, 0, key_steps);
      task.next = {.unit = unit + team < whole ? unit + team : -1, .shares = 0};
      for (int64_t j = 0; j < key_blocks; ++j) {
        task.next.shares += members * std::max<int64_t>(0, end_queries(unit, j) - first_queries(j));
      }
      for (int64_t member = 0; member < members; ++member) {
        path.pack_queries(task, member, 0, query_steps);
        for (int64_t j = 0; j < key_blocks; ++j) {
          const int64_t end = end_queries(unit, j);
          for (int64_t i = first_queries(j); i < end; ++i, ++task.next.share) path.accumulate(task, member, j, i);
        }
        path.write_queries(task, member, 0, query_steps);
      }
      path.write_keys(task, 0, key_steps);
    }
    const auto shared_task = [&](int64_t slot) {
      return Task{problem, operands, whole + slot, regions.shared_of(slot), mine};
    };
    const auto end_step = [&](int64_t first, int64_t steps) {
      return std::min(first + path.steps_per_block, steps);
    };
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < left * key_blocks; ++item) {
      const int64_t first = item % key_blocks * path.steps_per_block;
      path.pack_keys(shared_task(item / key_blocks), first, end_step(first, key_steps));
    }
    for (int64_t member = 0; member < members && left > 0; ++member) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t item = 0; item < left * blocks; ++item) {
        const int64_t first = item % blocks * path.steps_per_block;
        path.pack_queries(shared_task(item / blocks), member, first, end_step(first, query_steps));
      }
      for (int64_t wave = 0; wave < key_blocks + blocks - 1; ++wave) {
        const int64_t first = std::max<int64_t>(0, wave - (blocks - 1));
        int64_t last = std::min(wave, key_blocks - 1);  // key blocks
        while (last >= first && wave - last < first_queries(last)) --last;
        const int64_t pairs = last - first + 1;
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < left * pairs; ++item) {
          const int64_t j = first + item % pairs, slot = item / pairs;
          if (wave - j < end_queries(whole + slot, j)) path.accumulate(shared_task(slot), member, j, wave - j);
        }
      }
#pragma omp for schedule(dynamic, 1)
      for (int64_t item = 0; item < left * blocks; ++item) {
        const int64_t first = item % blocks * path.steps_per_block;
        path.write_queries(shared_task(item / blocks), member, first, end_step(first, query_steps));
      }
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < left * key_blocks; ++item) {
      const int64_t first = item % key_blocks * path.steps_per_block;
      path.write_keys(shared_task(item / key_blocks), first, end_step(first, key_steps));
    }
  }
}

}  // namespace heddle::kernels::host::attention
