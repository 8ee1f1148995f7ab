#include "check/dump.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "check/subject.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"

namespace heddle::check {

namespace {

constexpr int64_t kMostText = int64_t{64} << 20;  // bytes of a JSON file

bool is_float(formats::StoredType type) {
  using T = formats::StoredType;
  return type == T::f64 || type == T::f32 || type == T::f16 || type == T::bf16;
}

std::vector<double> numbers(const formats::StoredTensor& tensor, const std::string& place) {
  if (!is_float(tensor.type))
    config_error("{}: {} is {}; F64, F32, F16 and BF16 are accepted", place, formats::printable(tensor.name),
                 formats::name_of(tensor.type));
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  tensor.read(0, tensor.elements(), Dtype::f64, values.data());
  return values;
}

int64_t integer_at(const formats::StoredTensor& tensor, int64_t i) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (tensor.type == formats::StoredType::i64) {
    std::memcpy(&wide, tensor.bytes.data() + i * 8, 8);
    return wide;
  }
  std::memcpy(&narrow, tensor.bytes.data() + i * 4, 4);
  return narrow;
}

void read_start(Dump& dump) {
  const Layout& layout = dump.layout;
  const std::string path = dump.path + "/start.safetensors";
  const formats::SafetensorsFile file(path);
  const int64_t count = int64_t{layout.mesh.dp} * layout.microbatches * layout.sequences;
  const int64_t length = layout.sequence_length;
  const formats::StoredTensor& tokens = file.at("tokens");
  if (tokens.type != formats::StoredType::i64 && tokens.type != formats::StoredType::i32)
    config_error("{}: tokens is {}; I64 and I32 are accepted", path, formats::name_of(tokens.type));
  if (tokens.shape != std::vector<int64_t>{count, length + 1})
    config_error("{}: tokens is [{}]; [{}, {}] is accepted: dp × microbatches × sequences, and sequence_length + 1",
                 path, fmt::join(tokens.shape, ", "), count, length + 1);
  for (int64_t s = 0; s < count; ++s) {
    std::vector<int32_t>& ids = dump.sequences.tokens.emplace_back();
    for (int64_t i = 0; i <= length; ++i) {
      const int64_t id = integer_at(tokens, s * (length + 1) + i);
      if (id < 0 || id >= layout.model.vocab_size)
        config_error("{}: tokens: the id {} is outside of the model's {}", path, id, layout.model.vocab_size);
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  if (const formats::StoredTensor* mask = file.find("loss_mask")) {
    if (mask->type != formats::StoredType::u8 || mask->shape != std::vector<int64_t>{count, length})
      config_error("{}: loss_mask: U8 of [{}, {}] is accepted", path, count, length);
    for (int64_t s = 0; s < count; ++s) {
      std::vector<uint8_t>& masked = dump.sequences.masked.emplace_back(static_cast<size_t>(length) + 1, 0);
      for (int64_t i = 0; i < length; ++i)
        masked[static_cast<size_t>(i) + 1] = mask->bytes[static_cast<size_t>(s * length + i)] == 0;
    }
  }
  for (const formats::StoredTensor& tensor : file.tensors()) {
    if (tensor.name != "tokens" && tensor.name != "loss_mask")
      dump.start[tensor.name] = {tensor.shape, numbers(tensor, path)};
  }
}

void read_rank(Dump& dump, int rank) {
  const std::string folder = fmt::format("{}/rank-{:05}", dump.path, rank), index = folder + "/index.json";
  std::vector<std::string> names;
  RankDump one = read_index(read_file(index, kMostText), index, dump.layout, rank, names);
  const formats::SafetensorsFile file(folder + "/tensors.safetensors");
  for (size_t i = 0; i < names.size(); ++i) {
    Record& record = one.records[i];
    const formats::StoredTensor& tensor = file.at(names[i]);
    if (tensor.elements() != record.slice.elements())
      config_error("{}: tensors[{}]: 'at' has {} elements, {} in tensors.safetensors has {}", index, i,
                   record.slice.elements(), formats::printable(names[i]), tensor.elements());
    record.values = numbers(tensor, file.path());
    for (double& value : record.values) value /= record.scale;
  }
  dump.ranks.push_back(std::move(one));
}

// Without experts that are spread, a rank need not say where it stands among them.
bool stands_at(const ir::Coordinates& given, const ir::Coordinates& place) {
  const bool spread = place.of(ir::Axis::ep) * place.of(ir::Axis::etp) > 1;
  for (int a = 0; a < ir::kAxes; ++a) {
    const auto axis = static_cast<ir::Axis>(a);
    const bool open = axis == ir::Axis::edp && (!spread || given.at(axis) < 0);
    if (!open && given.at(axis) != place.at(axis)) return false;
  }
  return true;
}

bool same_fold(const plan::Mesh& mesh, const Dump& dump, std::vector<int>& order) {
  order.assign(dump.ranks.size(), -1);
  for (size_t r = 0; r < dump.ranks.size(); ++r) {
    for (int other = 0; other < mesh.ranks(); ++other) {
      if (stands_at(dump.ranks[r].at, mesh.at(other))) order[r] = other;
    }
    if (order[r] < 0) return false;
  }
  std::vector<int> once = order;
  std::sort(once.begin(), once.end());
  return std::adjacent_find(once.begin(), once.end()) == once.end();
}

}  // namespace

Dump read_dump(const std::string& path) {
  Dump dump;
  dump.path = path;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    config_error("{}: no such folder; a folder with layout.json, start.safetensors and rank-NNNNN/ is accepted",
                 path);
  const std::string layout = path + "/layout.json";
  dump.layout = read_layout(read_file(layout, kMostText), layout, read_subject);
  read_start(dump);
  for (int rank = 0; rank < dump.layout.mesh.ranks(); ++rank) read_rank(dump, rank);
  size_t tensors = 0;
  for (const RankDump& rank : dump.ranks) tensors += rank.records.size();
  if (tensors == 0) config_error("{}: no rank has a tensor", path);
  return dump;
}

std::vector<int> order_ranks(Dump& dump) {
  plan::Degrees& mesh = dump.layout.mesh;
  const auto settled = [&](const std::vector<int>& order) {
    const plan::Mesh folded(mesh);
    for (size_t r = 0; r < order.size(); ++r) dump.ranks[r].at = folded.at(order[r]);
    return order;
  };
  std::vector<std::string> dense{"tp", "cp", "dp", "pp"}, expert{"etp", "ep", "edp"};
  std::sort(dense.begin(), dense.end());
  std::vector<int> order;
  const plan::Degrees usual;
  if (same_fold(plan::Mesh(mesh), dump, order)) return settled(order);
  do {
    std::sort(expert.begin(), expert.end());
    do {
      mesh.order = fmt::format("{}", fmt::join(dense, "-"));
      mesh.expert_order = fmt::format("{}", fmt::join(expert, "-"));
      if (same_fold(plan::Mesh(mesh), dump, order)) return settled(order);
    } while (std::next_permutation(expert.begin(), expert.end()));
  } while (std::next_permutation(dense.begin(), dense.end()));
  mesh.order = usual.order, mesh.expert_order = usual.expert_order;
  config_error(
      "{}: the coordinates of the ranks are no fold of {}: each of tp × cp × dp × pp is one rank, and each of "
      "etp × ep × edp × pp",
      dump.path, plan::text_of(mesh));
}

}  // namespace heddle::check
