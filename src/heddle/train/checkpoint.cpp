#include "heddle/train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr int kMostNesting = 16;
constexpr int64_t kMostStateBytes = 1 << 24;
constexpr std::string_view kPrefix = "step-";
constexpr const char *kTensorFile = "model.safetensors", *kStateFile = "state.json";

std::string name_of_step(int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

// The step of a checkpoint's name, or -1.
int64_t step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char *first = name.data() + kPrefix.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last && step >= 0 && name == name_of_step(step) ? step : -1;
}

// A link could be led elsewhere between two looks at it, and what is replaced or removed would be another folder's.
void refuse_link(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored)) return;
  config_error("{} is a symbolic link; checkpoints stand in folders of their own (the run's folder may be a link)",
               path);
}

// Steps that have a checkpoint, newest first. A folder that is there but can't be read is not taken for an empty
// one.
std::vector<int64_t> steps_in(const std::string& folder) {
  refuse_link(folder);
  std::vector<int64_t> steps;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const int64_t step = step_of_name(at->path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    throw SystemError(failed.value(), fmt::format("cannot read {}: {}", folder, failed.message()));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string hex(uint32_t checksum) { return fmt::format("{:08x}", checksum); }

[[noreturn]] void fail(const char* doing, const std::string& path, int code) {
  throw SystemError(code, fmt::format("cannot {} {}: {}", doing, path, std::strerror(code)));
}

json json_of(const OutlierHistory& h) {
  return {{"norms", h.norms},     {"losses", h.losses},     {"left_out", h.left_out},
          {"skipped", h.skipped}, {"in_a_row", h.in_a_row}, {"gone_back", h.gone_back}};
}

OutlierHistory outliers_of(const json& from) {
  OutlierHistory h;
  from.at("norms").get_to(h.norms);
  from.at("losses").get_to(h.losses);
  from.at("left_out").get_to(h.left_out);
  from.at("skipped").get_to(h.skipped);
  from.at("in_a_row").get_to(h.in_a_row);
  from.at("gone_back").get_to(h.gone_back);
  return h;
}

json json_of(const ExpertHistory& h) {
  json all = json::array();
  for (const auto& [number, layer] : h.layers)
    all.push_back({{"layer", number}, {"rows", layer.rows_E}, {"uneven", layer.uneven}});
  return all;
}

ExpertHistory expert_history_of(const json& from, int64_t experts, const std::string& path) {
  ExpertHistory h;
  for (const json& of : from) {
    ExpertHistory::Layer& layer = h.layers[of.at("layer").get<int>()];
    of.at("rows").get_to(layer.rows_E);
    of.at("uneven").get_to(layer.uneven);
    const bool sound = std::ssize(layer.rows_E) == experts && std::ranges::all_of(layer.rows_E, [](double rows) {
                         return rows >= 0 && std::isfinite(rows);
                       });
    if (!sound)
      config_error("{}: the rows of {} experts are told, {} rows of 0 or more expected", path, layer.rows_E.size(),
                   experts);
  }
  return h;
}

json json_of(const CheckpointState& s) {
  json all{{"format", kFormat},
           {"step", s.step},
           {"trained_seconds", s.trained_s},
           {"consumed_sequences", s.consumed_sequences},
           {"seed", s.seed},
           {"model", json(config::model_config_to_json(s.model))},
           {"data", s.data},
           {"layout", s.layout}};
  if (!s.adapters.empty()) all["adapters"] = s.adapters;
  if (s.outliers != OutlierHistory()) all["outliers"] = json_of(s.outliers);
  if (!s.expert_history.layers.empty()) all["expert_history"] = json_of(s.expert_history);
  return all;
}

// The text of state.json: read back, it must be this text again, so that nothing can stand in it beside the state.
std::string state_text(const json& state) {
  const std::string dump = state.dump();
  return json{{"checksum", hex(crc32c(dump.data(), dump.size()))}, {"state", state}}.dump(1) + "\n";
}

// Removed when the scope ends, unless it was given its name.
struct UnfinishedFolder {
  explicit UnfinishedFolder(std::string at) : path(std::move(at)) {
    if (::mkdir(path.c_str(), 0755) != 0) fail("create", path, errno);
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

void write_tensors(const std::string& path, const std::vector<formats::TensorHeading>& headings,
                   const TensorBytes& bytes_of, json& state) {
  formats::SafetensorsWriter writer(path, headings);
  json checksums = json::object();
  for (const formats::TensorHeading& heading : headings) {
    uint32_t checksum = 0;
    int64_t bytes = 0;
    bytes_of(heading, [&](const void* data, size_t size_bytes) {
      checksum = crc32c(data, size_bytes, checksum);
      writer.write(data, size_bytes);
      bytes += static_cast<int64_t>(size_bytes);
    });
    HEDDLE_CHECK(bytes == heading.size_bytes(), "the pieces of '{}' have {} bytes, the tensor {}", heading.name,
                 bytes, heading.size_bytes());
    checksums[heading.name] = hex(checksum);
  }
  writer.commit();
  state["header"] = hex(crc32c(writer.header().data(), writer.header().size()));
  state["tensors"] = std::move(checksums);
}

// Puts `unfinished` at `path`. One that stands there is exchanged with it in one stroke, so that a reader finds the
// one or the other.
void give_name(const std::string& unfinished, const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) fail("replace", path, errno);
    fs::remove_all(path, ignored);  // a file system that can't exchange
  }
  if (::rename(unfinished.c_str(), path.c_str()) != 0) fail("finish", path, errno);
}

// The new one stands: what can't be removed now is tried again at the next.
void remove_old(const std::string& folder, int64_t newest, int keep) {
  std::error_code ignored;
  int kept = 1;
  std::vector<int64_t> steps;
  try {
    steps = steps_in(folder);
  } catch (const SystemError&) {
    return;
  }
  for (const int64_t step : steps) {
    if (step >= newest || ++kept <= keep) continue;
    // Under a hidden name first: a reader must not meet it half removed.
    const std::string path = (fs::path(folder) / name_of_step(step)).string(), hidden = temporary_beside(path);
    if (::rename(path.c_str(), hidden.c_str()) == 0) fs::remove_all(hidden, ignored);
  }
  remove_temporaries(folder);  // what a crash left behind
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const std::vector<formats::LogicalTensor>& tensors, int keep) {
  std::vector<formats::TensorHeading> headings;
  std::map<std::string_view, const formats::LogicalTensor*> by_name;
  for (const formats::LogicalTensor& tensor : tensors) {
    headings.push_back({tensor.name, tensor.dtype, tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  const TensorBytes bytes_of = [&](const formats::TensorHeading& heading, const auto& write) {
    for (const auto& piece : by_name.at(heading.name)->pieces) write(piece.data(), piece.size());
  };
  return save_checkpoint(folder, state, std::move(headings), bytes_of, keep);
}

std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            std::vector<formats::TensorHeading> headings, const TensorBytes& bytes_of, int keep) {
  formats::sort_for_file(headings);
  HEDDLE_CHECK(state.step >= 0 && keep >= 1, "step {}, keep {}", state.step, keep);
  const std::string path = (fs::path(folder) / name_of_step(state.step)).string();
  refuse_link(folder);
  std::error_code failed;
  if (fs::create_directories(folder, failed)) flush_folder(fs::absolute(folder).lexically_normal().parent_path());
  if (failed) fail("create", folder, failed.value());
  {
    const UnfinishedFolder unfinished(temporary_beside(path));
    json json = json_of(state);
    write_tensors((fs::path(unfinished.path) / kTensorFile).string(), headings, bytes_of, json);
    OutputFile file((fs::path(unfinished.path) / kStateFile).string(), OutputFile::Open::replace,
                    OutputFile::Access::owner);
    file.write(state_text(json));
    file.commit();  // and with it the names of both files
    try {
      const Checkpoint read_back(unfinished.path);
    } catch (const ConfigError& error) {
      throw SystemError(EIO,
                        fmt::format("cannot save {}: the disk gives back other bytes: {}", path, error.what()));
    }
    give_name(unfinished.path, path);
    flush_folder(folder);
  }
  remove_old(folder, state.step, keep);
  return path;
}

Checkpoint::Checkpoint(const std::string& path, Verify what)
    : path_(path), file_((fs::path(path) / kTensorFile).string()) {
  verify((fs::path(path) / kStateFile).string(), what);
  const fs::path at = fs::path(path).lexically_normal();
  const std::string name = (at.has_filename() ? at : at.parent_path()).filename().string();
  if (const int64_t named = step_of_name(name); named >= 0 && named != state_.step) {
    config_error("{}: named as of step {}, it holds step {}: a checkpoint keeps its name", path, named,
                 state_.step);
  }
}

void Checkpoint::verify(const std::string& path, Verify what) {
  const std::string text = read_file(path, kMostStateBytes);
  try {
    const json root = formats::parse_json(text, path, kMostNesting);
    const json& state = root.at("state");
    const std::string dump = state.dump(), found = hex(crc32c(dump.data(), dump.size()));
    if (root.size() != 2 || root.at("checksum").get<std::string>() != found) {
      config_error("{}: its content has the checksum {}, {} is expected; the file is damaged", path, found,
                   formats::printable(root.at("checksum").get<std::string>()));
    }
    if (text != state_text(state)) {
      config_error("{}: {} bytes, of which the state is {}: something was added; the file is damaged", path,
                   text.size(), state_text(state).size());
    }
    if (state.at("format").get<int>() != kFormat) {
      config_error("{}: format {}, this program reads format {}", path, state.at("format").get<int>(), kFormat);
    }
    state_.step = state.at("step").get<int64_t>();
    state_.trained_s = state.value("trained_seconds", 0.0);
    state_.consumed_sequences = state.at("consumed_sequences").get<int64_t>();
    state_.seed = state.at("seed").get<uint64_t>();
    if (state_.step < 0 || state_.consumed_sequences < 0 || !(state_.trained_s >= 0)) {
      config_error("{}: step {}, {} sequences consumed, {} s of training", path, state_.step,
                   state_.consumed_sequences, state_.trained_s);
    }
    state_.model = config::model_config_from_json(state.at("model"), path);
    state_.data = state.at("data").get<std::map<std::string, std::string>>();
    if (state.contains("adapters")) state_.adapters = state.at("adapters").get<decltype(state_.adapters)>();
    if (state.contains("outliers")) state_.outliers = outliers_of(state.at("outliers"));
    const OutlierHistory& outliers = state_.outliers;
    if (outliers.left_out < 0 || outliers.left_out > state_.step || outliers.in_a_row < 0 || outliers.skipped < 0) {
      config_error("{}: {} of {} steps left out, {} skipped, {} in a row", path, outliers.left_out, state_.step,
                   outliers.skipped, outliers.in_a_row);
    }
    if (state.contains("expert_history"))
      state_.expert_history = expert_history_of(state.at("expert_history"), state_.model.n_routed_experts, path);
    state_.layout = state.at("layout").get<std::map<std::string, std::string>>();

    const auto check = [&](const std::string& part, std::span<const uint8_t> bytes, const std::string& expected) {
      const std::string sum = hex(crc32c(bytes.data(), bytes.size()));
      if (sum != expected) {
        config_error("{}: {} has the checksum {}, {} is expected; the file is damaged", file_.path(), part, sum,
                     expected);
      }
    };
    check("the header", file_.header(), state.at("header").get<std::string>());
    const json& checksums = state.at("tensors");
    if (checksums.size() != file_.tensors().size()) {
      config_error("{}: {} tensors, {} are expected", file_.path(), file_.tensors().size(), checksums.size());
    }
    for (const formats::StoredTensor& tensor : file_.tensors()) {
      if (!checksums.contains(tensor.name)) {
        config_error("{}: tensor '{}' is not listed in {}", file_.path(), formats::printable(tensor.name),
                     kStateFile);
      }
      if (what == Verify::headings) continue;
      check(fmt::format("tensor '{}'", formats::printable(tensor.name)), tensor.bytes,
            checksums.at(tensor.name).get<std::string>());
    }
  } catch (const json::exception&) {
    config_error("{}: not the state of a checkpoint: a key is missing or its value is of another type", path);
  }
}

void Checkpoint::check_fits(const model::ModelConfig& model,
                            const std::vector<formats::TensorHeading>& headings) const {
  if (const std::string other = config::difference(state_.model, model); !other.empty()) {
    config_error("{}: a checkpoint of another model: {}", path_, other);
  }
  std::set<std::string_view> wanted;
  for (const formats::TensorHeading& heading : headings) {
    const formats::StoredTensor* stored = file_.find(heading.name);
    if (stored == nullptr) config_error("{}: no tensor '{}' in it", path_, heading.name);
    if (stored->type != formats::stored_type(heading.dtype) || stored->shape != heading.shape) {
      config_error("{}: tensor '{}' is {} [{}], {} [{}] is expected", path_, heading.name, name_of(stored->type),
                   fmt::join(stored->shape, ", "), name_of(formats::stored_type(heading.dtype)),
                   fmt::join(heading.shape, ", "));
    }
    wanted.insert(heading.name);
  }
  for (const formats::StoredTensor& stored : file_.tensors()) {
    if (!wanted.contains(stored.name)) {
      config_error("{}: tensor '{}' belongs nowhere in this model", path_, formats::printable(stored.name));
    }
  }
}

void Checkpoint::load_into(const model::ModelConfig& model,
                           const std::vector<formats::LogicalTensor>& tensors) const {
  std::vector<formats::TensorHeading> headings;
  for (const formats::LogicalTensor& tensor : tensors)
    headings.push_back({tensor.name, tensor.dtype, tensor.shape});
  check_fits(model, headings);
  for (const formats::LogicalTensor& tensor : tensors) {
    int64_t bytes = 0;
    for (const auto& piece : tensor.pieces) bytes += std::ssize(piece);
    HEDDLE_CHECK(bytes == tensor.size_bytes(), "the pieces of '{}' have {} bytes, the tensor {}", tensor.name,
                 bytes, tensor.size_bytes());
  }
  for (const formats::LogicalTensor& tensor : tensors) {
    const uint8_t* from = file_.at(tensor.name).bytes.data();
    for (const auto& piece : tensor.pieces) {
      if (!piece.empty()) std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
  }
}

std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused,
                                            int64_t last_step) {
  const auto listed = [&] {
    std::vector<int64_t> steps = steps_in(folder);
    std::erase_if(steps, [&](int64_t step) { return step > last_step; });
    return steps;
  };
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    const std::vector<int64_t> steps = listed();
    std::vector<std::string> reasons;
    for (const int64_t step : steps) {
      try {
        const std::string path = (fs::path(folder) / name_of_step(step)).string();
        refuse_link(path);
        Checkpoint checkpoint(path);
        if (refused != nullptr) *refused = std::move(reasons);
        return checkpoint;
      } catch (const InternalError&) {
        throw;
      } catch (const Error& error) {
        reasons.emplace_back(error.what());
      }
    }
    if (steps.empty()) return std::nullopt;
    // A run that goes on may have replaced them all since they were listed.
    if (steps != listed() && attempt < kAttempts) continue;
    config_error("{}: none of {} checkpoints can be used; the newest: {}", folder, steps.size(), reasons.front());
  }
}

Checkpoint open_checkpoint(const std::string& path, std::vector<std::string>* refused) {
  const fs::path at = fs::path(path).lexically_normal();
  const fs::path trimmed = at.has_filename() ? at : at.parent_path();
  std::error_code ignored;
  const bool single = fs::exists(trimmed / kStateFile, ignored) || fs::exists(trimmed / kTensorFile, ignored) ||
                      step_of_name(trimmed.filename().string()) >= 0;
  if (!single) {
    std::optional<Checkpoint> latest = latest_checkpoint(trimmed.string(), refused);
    if (!latest) config_error("{}: no checkpoint in it", path);
    return std::move(*latest);
  }
  try {
    return Checkpoint(trimmed.string());
  } catch (const ConfigError& error) {
    std::string other;
    try {
      const fs::path beside = trimmed.has_parent_path() ? trimmed.parent_path() : fs::path(".");
      if (const auto latest = latest_checkpoint(beside.string())) other = latest->path();
    } catch (const ConfigError&) {
      // The one that was asked for is the one to complain of.
    }
    if (other.empty()) throw;
    config_error("{}; {} is whole", error.what(), other);
  }
}

}  // namespace heddle::train
