#include "heddle/train/step/rank_figures.h"

#include <algorithm>

#include "heddle/ir/op.h"

namespace heddle::train {

namespace {

constexpr size_t kFigures = 10;  // numbers of RankFigures

}  // namespace

RankWork work_of(const device::StreamTimes& times) {
  RankWork work;
  const auto seconds = [&](ir::Phase phase) {
    return static_cast<double>(times.steady[static_cast<size_t>(phase)].ns) * 1e-9;
  };
  work.forward_s = seconds(ir::Phase::F);
  work.backward_s = seconds(ir::Phase::I) + seconds(ir::Phase::W);
  work.update_s = seconds(ir::Phase::begin) + seconds(ir::Phase::end);
  for (const device::Work& by_rows : times.by_rows) {
    work.experts_s += static_cast<double>(by_rows.ns) * 1e-9;
    work.expert_rows += static_cast<double>(by_rows.rows);
  }
  return work;
}

void append(std::vector<double>& row, const RankFigures& own, int rank, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const RankFigures& figures = r == rank ? own : RankFigures();
    row.push_back(figures.seconds);
    row.push_back(static_cast<double>(figures.peak_live_bytes));
    row.push_back(static_cast<double>(figures.reserved_bytes));
    row.push_back(static_cast<double>(figures.grown_bytes));
    const RankWork& work = figures.work;
    row.insert(row.end(), {work.forward_s, work.backward_s, work.update_s, work.experts_s, work.expert_rows});
    row.push_back(figures.max_logit);
  }
}

void take_figures(StepResult& result, std::span<const double> figures) {
  for (size_t i = 0; i + kFigures <= figures.size(); i += kFigures) {
    const auto bytes = [&](size_t at) { return static_cast<int64_t>(figures[i + at]); };
    result.seconds = std::max(result.seconds, figures[i]);
    result.peak_live_bytes = std::max(result.peak_live_bytes, bytes(1));
    result.reserved_bytes = std::max(result.reserved_bytes, bytes(2));
    result.work.push_back({figures[i + 4], figures[i + 5], figures[i + 6], figures[i + 7], figures[i + 8]});
    result.max_logit = std::max(result.max_logit, figures[i + 9]);
    if (bytes(3) <= result.grown_bytes) continue;
    result.grown_bytes = bytes(3);
    result.grown_rank = static_cast<int>(i / kFigures);
  }
}

}  // namespace heddle::train
