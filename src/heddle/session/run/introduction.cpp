#include "heddle/session/run/introduction.h"

#include "heddle/comm/device_world.h"
#include "heddle/device/device_facts.h"
#include "heddle/kernels/registry.h"
#include "heddle/observe/units.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/session/run_data.h"
#include "heddle/train/step/step_work.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

std::string devices_text(std::string_view backend, int64_t ranks) {
  if (backend != "cuda") return "";
  std::string text = fmt::format("cuda: {}; products: {}; attention: {}; experts: {}", device::cuda_device_in_use(),
                                 kernels::cuda_product_library().text, kernels::cuda_attention_library().text,
                                 kernels::cuda_expert_kernels());
  if (ranks > 1) text += "; between ranks: " + comm::device_world_text();
  return text;
}

std::vector<std::string> introduction(const RunContext& run) {
  const config::RunConfig& config = run.config;
  const data::Dataset& dataset = *run.data->dataset;
  const train::TrainerOptions& options = run.trainer->options();
  const plan::Degrees& mesh = options.plan.mesh;
  const model::ParameterCount count = run.trainer->work().parameters;
  std::vector<std::string> lines;
  if (std::string device = devices_text(config.device.backend, mesh.ranks()); !device.empty())
    lines.push_back(std::move(device));
  lines.push_back(fmt::format("{}: {} parameters, {} active a token, {} on {} thread{}", config.name,
                              observe::count_text(static_cast<double>(count.total)),
                              observe::count_text(static_cast<double>(count.active)), name_of(options.plan.dtype),
                              options.threads, options.threads == 1 ? "" : "s"));
  if (mesh.ranks() > 1) {
    lines.push_back(fmt::format("{}, {}; a step: {} x {} sequences each", plan::text_of(mesh),
                                run.place.threads ? "as threads" : "under MPI", config.microbatches(),
                                config.train.microbatch));
  }
  if (const runtime::CopyEngine* copies = run.trainer->copy_engine(); copies != nullptr && copies->asked())
    lines.push_back("copy engine: " + copies->selection_text());
  lines.push_back(fmt::format("data: {} tokens, {} sequences to train on, {} held out",
                              observe::count_text(static_cast<double>(dataset.tokens())),
                              observe::grouped_text(dataset.train_sequences()),
                              observe::grouped_text(dataset.heldout_sequences())));
  if (config.train.epochs > 0)
    lines.push_back(fmt::format("length: {:g} epochs of these, {} steps", config.train.epochs,
                                observe::grouped_text(config.train.steps)));
  lines.push_back(fmt::format("memory: {} to be reserved{}; a step: {} tokens, {}",
                              observe::bytes_text(run.peak.reserved_bytes),
                              mesh.ranks() > 1 ? " by a rank at most" : "",
                              observe::grouped_text(config.train.global_batch * config.train.sequence_length),
                              observe::count_text(run.trainer->work().flops, "FLOP")));
  const int64_t first = run.summary.first_step;
  lines.push_back(fmt::format("run folder: {}{}", run.folder.path,
                              first > 0 ? fmt::format(", going on after step {}", first) : ""));
  if (first == 0 && !config.train.start.empty())
    lines.push_back(fmt::format("begins from the weights of {}, moments {}", config.train.start,
                                heddle::word_of(config.train.start_moments)));
  return lines;
}

}  // namespace heddle::session
