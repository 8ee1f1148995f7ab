#include "heddle/train/run_config_plan.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "heddle/backends/backend.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/runtime/predict.h"
#include "heddle/schedule/text.h"

namespace heddle::train {

Dtype resolved_dtype(const config::RunConfig& config) {
  return config.device.dtype ? *config.device.dtype : backends::named(config.device.backend).usual_dtype();
}

namespace {

schedule::Schedule read_schedule_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) config_error("parallel.schedule: {}: cannot be read: {}", path, std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) config_error("{}: larger than {} bytes, no schedule", path, kMostBytes);
  try {
    return schedule::read_schedule(text);
  } catch (const ConfigError& error) {
    config_error("{}: {}", path, error.what());
  }
}

}  // namespace

plan::Plan plan_of(const config::RunConfig& config) {
  plan::Plan plan{config.plan};
  plan.mesh = config.degrees();
  plan.microbatches = static_cast<int>(config.microbatches());
  plan.sequences = config.train.microbatch;
  plan.sequence_length = config.train.sequence_length;
  for (const int64_t batch : config.train.batch_ramp.batches(config.train.global_batch)) {
    const auto microbatches = static_cast<int>(batch / (config.train.microbatch * config.data_ranks()));
    if (microbatches < plan.microbatches) plan.fewer_microbatches.push_back(microbatches);
  }
  plan.documents_apart = !config.data.attend_across_documents;
  if (plan.documents_apart) plan.document_end = config.data.document_end;
  plan.weighs_labels = !config.data.weight_key.empty();
  plan.dtype = resolved_dtype(config);
  const std::string& schedule = plan.parallel.schedule;
  if (schedule.find('/') != std::string::npos || schedule.ends_with(".txt"))
    plan.order = read_schedule_file(schedule);
  plan.rates = backends::named(config.device.backend).rates;
  constexpr double kBytesPerUs = 1000;  // 1 GB/s
  constexpr double kFlopsPerUs = 1000;  // 1 GFLOP/s
  if (plan.memory.host_rate > 0) plan.rates.host_bytes_per_us = plan.memory.host_rate * kBytesPerUs;
  if (plan.device.product_rate > 0) plan.rates.flops_per_us = plan.device.product_rate * kFlopsPerUs;
  if (plan.device.memory_rate > 0) plan.rates.bytes_per_us = plan.device.memory_rate * kBytesPerUs;
  if (plan.memory.update_rate > 0) plan.rates.processor_bytes_per_us = plan.memory.update_rate * kBytesPerUs;
  if (!plan.device.product_ways.empty()) plan.rates.ways.rates = cost::WayRates::parse(plan.device.product_ways);
  plan.rates.message_bytes_per_us = plan.parallel.message_rate * kBytesPerUs;
  plan.rates.message_latency_us = plan.parallel.message_latency_us;
  plan.rates.message_share = plan.device.copy_engine == plan::CopyEngine::on ? 0 : plan.device.message_share;
  return as_trained(std::move(plan), config.device.backend);
}

int64_t memory_limit_of(const config::RunConfig& config, const Sharing& sharing) {
  const plan::Memory& memory = config.plan.memory;
  const int64_t limit = config.device.memory_bytes;
  if (memory.budget_bytes > 0) return limit > 0 ? std::min(memory.budget_bytes, limit) : memory.budget_bytes;
  if (memory.budget_share > 0) {
    config::RunConfig whole = config;
    whole.plan.memory.budget_share = 0;
    return std::max(int64_t{1}, static_cast<int64_t>(memory.budget_share *
                                                     static_cast<double>(memory_limit_of(whole, sharing))));
  }
  if (limit > 0) return limit;
  if (sharing.device) return sharing.device->memory_bytes();
  const backends::Backend& backend = backends::named(config.device.backend);
  if (!backend.shares_memory && backend.available()) return backend.open(sharing.seat)->memory_bytes();
  return device::host_memory_bytes() / sharing.memory;
}

runtime::Room room_of(const config::RunConfig& config) {
  const plan::Memory& memory = config.plan.memory;
  if (!memory.has_budget()) return {};
  return {memory.crowding > 0 ? memory.crowding : std::numeric_limits<double>::infinity(), true};
}

int64_t growth_limit_of(const config::RunConfig& config, const Sharing& sharing) {
  Sharing alone = sharing;
  alone.memory = 1;  // nobody has reserved what other ranks leave
  return memory_limit_of(config, alone);
}

int64_t arena_bytes_of(const config::RunConfig& config, int rank, const Sharing& sharing,
                       int64_t cached_sequences) {
  plan::Plan plan = plan_of(config);
  plan.cached_sequences = cached_sequences;
  const plan::Lowered lowered = plan::lower(config.model, plan);
  const std::string& backend = config.device.backend;
  int64_t limit_bytes = memory_limit_of(config, sharing);
  try {
    if (!config.plan.memory.offload.empty()) {  // values that wait on the host need room there
      const int64_t there = runtime::predict_memory(lowered.program, rank, backend).host_reserved_bytes;
      const int64_t left = device::host_memory_bytes() / sharing.memory - there;
      if (left < 0) throw ir::OutOfMemory(fmt::format("memory.offload puts {} bytes on the host", there));
      if (backends::named(backend).shares_memory) limit_bytes = std::min(limit_bytes, left);  // the same memory
    }
    return runtime::arena_bytes(lowered.program, rank, backend, limit_bytes, true, room_of(config));
  } catch (const ir::OutOfMemory& error) {
    throw DoesNotFit(fmt::format("{}: {}",
                                 config.plan.memory.has_budget()  ? "memory.budget"
                                 : config.device.memory_bytes > 0 ? "device.memory_bytes"
                                                                  : "the machine's memory",
                                 error.what()));
  }
}

TrainerOptions trainer_options_of(const config::RunConfig& config, int rank, const Sharing& shared,
                                  int64_t cached_sequences) {
  Sharing sharing = shared;
  const backends::Backend& backend = backends::named(config.device.backend);
  if (!sharing.device && !backend.shares_memory && backend.available()) sharing.device = backend.open(sharing.seat);
  TrainerOptions options;
  options.device = sharing.device;
  options.seat = sharing.seat;
  options.model = config.model;
  options.plan = plan_of(config);
  options.plan.cached_sequences = cached_sequences;
  options.backend = config.device.backend;
  const int copies = config.ranks() > 1 ? runtime::cores_for_copies(config.plan.device.copy_engine,
                                                                    backend.shares_memory, sharing.cores)
                                        : 0;
  options.threads =
      config.device.threads > 0
          ? static_cast<int>(config.device.threads)
          : std::max(1, (static_cast<int>(std::thread::hardware_concurrency()) - copies) / sharing.cores);
  options.memory_bytes = arena_bytes_of(config, rank, sharing, cached_sequences);
  options.memory_limit_bytes = growth_limit_of(config, sharing);
  options.seed = static_cast<uint64_t>(config.seed);
  options.start = config.train.start;
  options.outlier_window = config.train.skip_window;
  options.learning_rate = learning_rate_of(config);
  options.length = config.length();
  return options;
}

LearningRate learning_rate_of(const config::RunConfig& config) {
  const config::RunConfig::Train& t = config.train;
  const config::RunLength length = config.length();
  LearningRate rate;
  rate.shape = t.schedule;
  rate.peak = t.learning_rate;
  rate.least = t.min_learning_rate;
  rate.warmup = length.by_clock() ? t.warmup_fraction * length.seconds : static_cast<double>(t.warmup_steps);
  rate.decay = length.by_clock() ? t.decay_fraction * length.seconds : static_cast<double>(t.decay_steps);
  return rate;
}

}  // namespace heddle::train
