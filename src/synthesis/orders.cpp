#include "synthesis/orders.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/base/error.h"

namespace heddle::schedule {

namespace {

constexpr size_t kMostChunks = 64;

bool has_forward(const Token& token) { return token.forward >= 0; }
bool has_backward(const Token& token) { return token.backward >= 0; }
bool gives_input_grad(const Token& token) { return has_backward(token) && token.kind != Kind::W; }
bool gives_weight_grad(const Token& token) { return has_backward(token) && token.kind != Kind::I; }

}  // namespace

void check(const OrderTask& task) {
  check_size(task.placement, task.microbatches);
  const auto stages = static_cast<size_t>(task.placement.stages);
  if (task.placement.routes != 1) config_error("schedule synthesis: two copies of each stage, accepted one");
  if (task.times.stages.size() != stages || task.bytes.size() != stages) {
    config_error("schedule synthesis: times of {} and bytes of {} stages, accepted of {}", task.times.stages.size(),
                 task.bytes.size(), stages);
  }
  if (std::ssize(task.cap_bytes) != task.placement.ranks)
    config_error("schedule synthesis: caps of {} ranks, accepted of {}", task.cap_bytes.size(),
                 task.placement.ranks);
  for (const StageBytes& of : task.bytes) {
    for (const double bytes : {of.until_input_grad, of.until_weight_grad}) {
      if (!(bytes >= 0 && std::isfinite(bytes)))
        config_error("schedule synthesis: a stage of {} bytes, accepted finite numbers of at least 0", bytes);
    }
  }
  for (int r = 0; r < task.placement.ranks; ++r) {
    const std::vector<int> own = task.placement.stages_of(r);
    if (own.size() > kMostChunks)
      config_error("schedule synthesis: {} stages on rank {}, accepted {}", own.size(), r, kMostChunks);
    double least = 0;
    for (const int stage : own) least += task.activation_bytes(stage);
    const double cap = task.cap_bytes[r];
    if (!(cap >= least * (1 - 1e-9)))
      config_error("schedule synthesis: cap {} of rank {}, accepted from {} (one microbatch of each of its stages)",
                   cap, r, least);
  }
}

Words words_of(const Schedule& schedule) {
  std::vector<int8_t> chunk_of(schedule.placement.rank_of.size());
  Words words;
  for (int r = 0; r < schedule.placement.ranks; ++r) {
    const std::vector<int> own = schedule.placement.stages_of(r);
    for (size_t c = 0; c < own.size(); ++c) chunk_of[own[c]] = static_cast<int8_t>(c);
    Word& word = words.emplace_back();
    for (const Action& action : schedule.order[r]) {
      Token token;
      const auto add = [&](const Compute& c) {
        const int8_t chunk = chunk_of[c.stage];
        (c.kind == Kind::F ? token.forward : token.backward) = chunk;
        if (c.kind != Kind::F) token.kind = c.kind;
      };
      add(action.first);
      if (action.with) add(*action.with);
      word.push_back(token);
    }
  }
  return words;
}

Schedule schedule_of(const OrderTask& task, const Words& words, std::string name) {
  Schedule schedule{std::move(name), task.placement, task.microbatches, {}};
  for (int r = 0; r < task.placement.ranks; ++r) {
    const std::vector<int> own = task.placement.stages_of(r);
    std::vector<std::array<int, 3>> done(own.size(), {0, 0, 0});
    const auto next = [&](Kind kind, int chunk) {
      auto& counts = done[chunk];
      const Kind counted = kind == Kind::B ? Kind::I : kind;
      if (kind == Kind::B) ++counts[static_cast<size_t>(Kind::W)];
      return Compute{kind, own[static_cast<size_t>(chunk)], counts[static_cast<size_t>(counted)]++};
    };
    std::vector<Action>& order = schedule.order.emplace_back();
    for (const Token& token : words[r]) {
      if (!has_backward(token)) {
        order.push_back({next(Kind::F, token.forward), {}});
      } else if (!has_forward(token)) {
        order.push_back({next(token.kind, token.backward), {}});
      } else {
        const Compute first = next(Kind::F, token.forward);
        order.push_back({first, next(token.kind, token.backward)});
      }
    }
  }
  return schedule;
}

Orders::Orders(const OrderTask& task) : task_(task) {
  const Placement& placement = task.placement;
  check(task);
  lanes_.resize(static_cast<size_t>(placement.ranks));
  for (int r = 0; r < placement.ranks; ++r) {
    stages_.push_back(placement.stages_of(r));
  }
  for (const std::vector<int>& own : stages_) {
    const size_t kinds = own.size() + 1;
    std::vector<double>& lengths = lengths_.emplace_back(kinds * kinds * 4, 0);
    for (size_t f = 0; f < kinds; ++f) {
      for (size_t b = 0; b < kinds; ++b) {
        for (const Kind kind : {Kind::F, Kind::I, Kind::W, Kind::B}) {
          const Token token{static_cast<int8_t>(f - 1), static_cast<int8_t>(b - 1), kind};
          if ((b == 0) != (kind == Kind::F) || (f == 0 && b == 0) || (f > 0 && kind == Kind::W)) continue;
          Action action;
          if (f > 0) action.first = {Kind::F, own[f - 1], 0};
          if (b > 0) {
            const Compute backward{kind, own[b - 1], 0};
            if (f > 0) {
              action.with = backward;
            } else {
              action.first = backward;
            }
          }
          lengths[length_at(token, kinds)] = duration_of(placement, task.times, action);
        }
      }
    }
  }
  for (int s = 0; s < placement.stages; ++s) {
    forward_from_.push_back(s > 0 ? placement.rank_of[static_cast<size_t>(s) - 1] : -1);
    gradient_from_.push_back(s + 1 < placement.stages ? placement.rank_of[static_cast<size_t>(s) + 1] : -1);
  }
}

double Orders::peak_bytes(int rank, const Word& word) const {
  const std::vector<int>& own = stages_[rank];
  scan_.assign(own.size(), {});
  double held = 0, peak = 0;
  for (const Token& token : word) {
    if (has_backward(token)) {
      Counts& counts = scan_[token.backward];
      if (token.kind == Kind::W ? counts.w >= counts.i : counts.i >= counts.f) return kNever;
      if (token.kind == Kind::B && counts.w != counts.i) return kNever;
    }
    if (has_forward(token)) {
      held += task_.activation_bytes(own[token.forward]);
      peak = std::max(peak, held);
      ++scan_[token.forward].f;
    }
    if (has_backward(token)) {
      Counts& counts = scan_[token.backward];
      const StageBytes& bytes = task_.bytes[own[token.backward]];
      if (gives_input_grad(token)) {
        held -= bytes.until_input_grad;
        ++counts.i;
      }
      if (gives_weight_grad(token)) {
        held -= bytes.until_weight_grad;
        ++counts.w;
      }
    }
  }
  return peak;
}

double Orders::ready(int rank, const Token& token) {
  Lane& lane = lanes_[rank];
  double at = 0;
  const auto need = [&](int from, const std::vector<double>& ends, std::vector<int>& waits, size_t cell) {
    if (ends[cell] < 0) {
      waits[cell] = rank;
      return false;
    }
    at = std::max(at, ends[cell] + (from == rank ? 0 : task_.times.hop));
    return true;
  };
  if (has_forward(token)) {
    const int stage = this->stage(rank, token.forward);
    const int from = forward_from_[stage];
    const int m = lane.counts[token.forward].f;
    if (from >= 0 && !need(from, end_f_, waits_f_, cell(stage - 1, m))) return -1;
  }
  if (gives_input_grad(token)) {
    const int stage = this->stage(rank, token.backward);
    const int from = gradient_from_[stage];
    const int m = lane.counts[token.backward].i;
    if (from >= 0 && !need(from, end_i_, waits_i_, cell(stage + 1, m))) return -1;
  }
  return at;
}

double Orders::time(const Words& words, double limit) {
  const size_t cells = static_cast<size_t>(task_.placement.stages) * static_cast<size_t>(task_.microbatches);
  end_f_.assign(cells, -1);
  end_i_.assign(cells, -1);
  waits_f_.assign(cells, -1);
  waits_i_.assign(cells, -1);
  ready_ranks_.clear();
  size_t to_come = 0;
  for (size_t r = words.size(); r-- > 0;) {
    Lane& lane = lanes_[r];
    lane.counts.assign(stages_[r].size(), {});
    lane.next = 0;
    lane.now = lane.left = 0;
    for (const Token& token : words[r]) lane.left += duration(static_cast<int>(r), token);
    to_come += words[r].size();
    ready_ranks_.push_back(static_cast<int>(r));
  }
  while (!ready_ranks_.empty()) {
    const int rank = ready_ranks_.back();
    ready_ranks_.pop_back();
    Lane& lane = lanes_[rank];
    const Word& word = words[rank];
    const auto done = [&](std::vector<double>& ends, std::vector<int>& waits, size_t cell) {
      ends[cell] = lane.now;
      if (waits[cell] >= 0) ready_ranks_.push_back(waits[cell]);
    };
    for (; lane.next < word.size(); ++lane.next, --to_come) {
      const Token& token = word[lane.next];
      const double at = ready(rank, token);
      if (at < 0) break;
      const double length = duration(rank, token);
      lane.now = std::max(lane.now, at) + length;
      lane.left -= length;
      if (lane.now + lane.left > limit) return kNever;
      if (has_forward(token)) {
        const int m = lane.counts[token.forward].f++;
        done(end_f_, waits_f_, cell(stage(rank, token.forward), m));
      }
      if (gives_input_grad(token)) {
        const int m = lane.counts[token.backward].i++;
        done(end_i_, waits_i_, cell(stage(rank, token.backward), m));
      }
      if (gives_weight_grad(token)) ++lane.counts[token.backward].w;
    }
  }
  if (to_come > 0) return kNever;
  double makespan = 0;
  sum_of_ends_ = 0;
  for (const Lane& lane : lanes_) {
    makespan = std::max(makespan, lane.now);
    sum_of_ends_ += lane.now;
  }
  return makespan;
}

}  // namespace heddle::schedule
