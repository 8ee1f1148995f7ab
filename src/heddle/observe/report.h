// The report of a run: one HTML file that needs nothing else, neither network nor scripts from elsewhere.
//
// It shows verdict cards, loss and its companions, speed, expert load, the memory and the streams of one step,
// sample text, configuration and environment. Whatever of ReportData is empty is left out, with its heading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/charts/page.h"
#include "heddle/observe/memory/memory_figure.h"
#include "heddle/observe/run_figures.h"
#include "heddle/observe/step_metrics.h"
#include "heddle/observe/timeline.h"

namespace heddle::observe {

using Facts = std::vector<std::pair<std::string, std::string>>;  // name, value

/// A tensor that was alive when the arena held most.
struct PeakTensor {
  std::string name;
  std::string dtype;
  std::string shape;
  std::string role;
  double bytes = 0;
  std::string layout;  // the reason where the bytes don't follow from type and shape
};

/// The pipeline of one step: each rank's actions.
struct PipelineView {
  std::string title, note;
  Timeline timeline;
  double until_us = 0;  // the end of its axis
};

struct SampleText {
  std::string prompt;
  std::string continuation;
  int64_t step = 0;
};

/// Time of each rank's work over that of ranks that do the same, window of steps by window.
struct RankSpeeds {
  std::vector<std::pair<int64_t, int64_t>> windows;  // first and last step of each
  size_t ranks = 0;                                  // in all; of many, only the slowest have rows
  std::vector<std::string> rows;                     // "rank 3 forward"
  std::vector<std::vector<double>> ratio;            // [row][window]; NaN where it can't be said
};

struct ReportData {
  std::string run_name;
  std::string subtitle;  // when, where, how long
  Facts model;           // shown as chips: {"parameters", "671 G"}
  std::vector<VerdictCard> cards;
  std::vector<StepMetrics> steps;          // the heat maps show those that have figures of layers
  std::optional<double> unigram_entropy;   // nats a token: what knowing only frequencies would reach
  RunFigures figures;                      // those steps' and the run's
  std::string fullest;                     // the rank that holds most; "" of one rank
  std::vector<std::string> expert_layers;  // a name for each row of expert_loads_LE; else they are numbered
  std::string expert_note;                 // a note on layers without a row: "layer 0 has no experts"
  RankSpeeds ranks;
  std::vector<MemoryView> memory;        // over one step: measured, predicted; for each memory
  std::vector<PeakTensor> peak_tensors;  // the largest 16 are shown
  std::string peak_of;                   // their rank: "rank 3"
  std::vector<PipelineView> pipeline;    // as it ran, as predicted
  std::string timeline_title;
  Timeline timeline;
  std::vector<SampleText> samples;
  Facts configuration;  // keys that are not at their defaults
  Facts defaults;       // those that are: folded away
  Facts environment;
};

std::string report_html(const ReportData& data);

/// Writes it atomically. Throws SystemError.
void write_report(const std::string& path, const ReportData& data);

}  // namespace heddle::observe
