#include "heddle/observe/services/mlflow.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/observe/charts/html.h"

namespace heddle::observe {

namespace {

namespace fs = std::filesystem;

constexpr int kRunning = 1, kFinished = 3, kKilled = 5;  // mlflow.entities.RunStatus
constexpr size_t kLongestParameter = 500;                // longer values are refused by MLflow's older versions

int64_t milliseconds(double unix_s) { return std::llround(unix_s * 1e3); }

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw SystemError(error.value(), fmt::format("cannot make {}: {}", path, error.message()));
}

std::string mlflow_number(double value) {
  return std::isnan(value) ? "nan" : std::isinf(value) ? (value > 0 ? "inf" : "-inf") : fmt::format("{}", value);
}

}  // namespace

MlflowRun::MlflowRun(const std::string& folder, const Names& names, bool goes_on) {
  const std::string root = fs::absolute(folder).lexically_normal().string();
  const std::string of_run = fs::absolute(names.run_folder).lexically_normal().string();
  experiment_id_ = fmt::format("{:018}", hash_bytes(names.experiment) % 1'000'000'000'000'000'000);
  run_id_ = fmt::format("{:016x}{:016x}", hash_bytes(of_run), hash_bytes(of_run + "/"));
  name_ = fs::path(names.run_folder).filename().string();
  began_s_ = wall_time_s();
  const std::string experiment = root + "/" + experiment_id_;
  path_ = experiment + "/" + run_id_;
  if (!goes_on) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folder(path_ + "/" + part);
  // Strings of JSON are strings of YAML.
  if (const std::string meta = experiment + "/meta.yaml"; !fs::exists(meta))
    write_file(meta, fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\n"
                                 "last_update_time: {}\nlifecycle_stage: active\nname: {}\n",
                                 json_string("file://" + experiment), milliseconds(began_s_), experiment_id_,
                                 milliseconds(began_s_), json_string(names.experiment)));
  for (const auto& [key, value] : names.settings) {
    if (value.size() <= kLongestParameter) write_file(path_ + "/params/" + key, value);
  }
  write_file(path_ + "/tags/mlflow.runName", name_);
  write_file(path_ + "/tags/mlflow.source.name", "heddle");
  write_meta(kRunning, 0);
}

void MlflowRun::write_meta(int status, double end_s) const {
  write_file(path_ + "/meta.yaml",
             fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                         "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nrun_uuid: {}\nsource_name: ''\n"
                         "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: ''\n",
                         json_string("file://" + path_ + "/artifacts"),
                         end_s > 0 ? fmt::format("{}", milliseconds(end_s)) : "null", experiment_id_, run_id_,
                         json_string(name_), run_id_, milliseconds(began_s_), status));
}

void MlflowRun::add(const StepMetrics& metrics) {
  const auto write = [&](const std::string& key, double value) {
    auto found = metrics_.find(key);
    if (found == metrics_.end())
      found = metrics_.emplace(key, OutputFile(path_ + "/metrics/" + key, OutputFile::Open::append)).first;
    found->second.write_whole(
        fmt::format("{} {} {}\n", milliseconds(metrics.wall_time_s), mlflow_number(value), metrics.step));
  };
  for (const Figures::Number& mlflow_number : metrics.numbers()) write(mlflow_number.key(), mlflow_number.value);
}

void MlflowRun::finish(bool whole) { write_meta(whole ? kFinished : kKilled, wall_time_s()); }

}  // namespace heddle::observe
