#include "heddle/train/released_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/train/released/layout.h"

namespace heddle::train {

namespace {

constexpr std::string_view kHead = "lm_head.weight", kScales = "_scale_inv";
constexpr int64_t kBlock = 128;  // rows and columns that share a factor

void list_some(std::string& text, const char* what, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  if (names.empty()) return;
  if (!text.empty()) text += "; ";
  text +=
      fmt::format("{} {}: {}", names.size(), what,
                  fmt::join(names.begin(), names.begin() + static_cast<long>(std::min(kMost, names.size())), ", "));
  if (names.size() > kMost) text += ", …";
}

std::string wrong_shape(const std::string& name, const std::vector<int64_t>& found,
                        const std::vector<int64_t>& expected) {
  return fmt::format("{} [{}] instead of [{}]", name, fmt::join(found, ", "), fmt::join(expected, ", "));
}

std::vector<int64_t> blocks_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> blocks;
  for (const int64_t size : shape) blocks.push_back((size + kBlock - 1) / kBlock);
  return blocks;
}

}  // namespace

ReleasedSource::ReleasedSource(const std::string& path, const std::vector<ParameterTensor>& parameters)
    : files_(path), parts_(parameters.size()) {
  std::set<std::string, std::less<>> used;
  std::set<std::pair<std::string, int>> taken;  // with the part of it
  std::vector<std::string> missing, misshapen, copies, unknown;
  std::vector<ReleasedSlice> slices = released_slices(parameters);
  for (ReleasedSlice& slice : slices) {
    config::Spelling spelling(slice.name);
    for (const config::Spelling& other : config::spellings_of(slice.name)) {  // as the folder's family spells them
      if (files_.find(other.name) == nullptr) continue;
      spelling = other;
      break;
    }
    slice.name = spelling.name;
    HEDDLE_CHECK(taken.emplace(slice.name, spelling.part).second, "two parameters want '{}'", slice.name);
    used.insert(slice.name);
    const formats::StoredTensor* stored = files_.find(slice.name);
    if (stored == nullptr) {
      missing.push_back(slice.name);
      continue;
    }
    if (const std::vector<int64_t> shape = shape_in(spelling, slice.shape); stored->shape != shape)
      misshapen.push_back(wrong_shape(slice.name, stored->shape, shape));
    const formats::StoredTensor* scales = nullptr;
    if (stored->type == formats::StoredType::f8_e4m3) {
      const std::string name = slice.name + std::string(kScales);
      scales = files_.find(name);
      if (scales == nullptr) {
        missing.push_back(name);
      } else if (stored->shape.size() != 2 || !spelling.is_plain() || scales->shape != blocks_of(stored->shape)) {
        misshapen.push_back(wrong_shape(name, scales->shape, blocks_of(stored->shape)));
      }
      used.insert(name);
    }
    parts_[slice.parameter].push_back({stored, scales, slice.first, slice.count, spelling.part * slice.count});
    if (spelling.turned) {
      Part& part = parts_[slice.parameter].back();
      part.columns = slice.shape[1];
      part.stride = slice.shape[0] * spelling.parts;
      part.start = slice.shape[0] * spelling.part;
    }
  }
  const bool has_head = used.contains(kHead);
  for (const auto& [name, stored] : files_.tensors()) {
    if (used.contains(name) || config::is_passed_over(name)) continue;
    if (stored->bytes.empty()) continue;  // Transformers stores shared experts of width 0
    const formats::StoredTensor* original = nullptr;
    for (const config::Spelling& each : config::spellings_of(std::string(config::original_of(name, has_head))))
      if (original == nullptr) original = files_.find(each.name);
    if (original == nullptr) {
      unknown.push_back(formats::printable(name));
    } else if (original->type != stored->type || !std::ranges::equal(original->bytes, stored->bytes)) {
      copies.push_back(name);
    }
  }
  std::string wrong;
  list_some(wrong, "tensors are missing", missing);
  list_some(wrong, "have another shape", misshapen);
  list_some(wrong, "belong nowhere", unknown);
  list_some(wrong, "should repeat the embedding or head but differ", copies);
  if (!wrong.empty()) config_error("{}: not this model: {}", files_.path(), wrong);
  for (std::vector<Part>& parts : parts_)
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.first < b.first; });
}

void ReleasedSource::read(size_t parameter, int64_t first, int64_t count, Dtype to, void* into) const {
  const std::vector<Part>& parts = parts_.at(parameter);
  auto at = std::upper_bound(parts.begin(), parts.end(), first,
                             [](int64_t element, const Part& part) { return element < part.first; });
  if (at != parts.begin()) --at;
  auto* bytes = static_cast<uint8_t*>(into);
  for (; count > 0; ++at) {
    HEDDLE_CHECK(at != parts.end() && at->first <= first && first < at->first + at->count,
                 "element {} of a parameter is in no released tensor", first);
    const int64_t run = std::min(count, at->first + at->count - first);
    read(*at, first - at->first, run, to, bytes);
    bytes += run * size_of(to);
    first += run;
    count -= run;
  }
}

// Elements of a row lie a stride apart: they are brought together, some at a time.
void ReleasedSource::read_turned(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  constexpr int64_t kMostTogether = 4096;
  const auto width = static_cast<size_t>(formats::size_of(part.values->type));
  std::vector<uint8_t> together(static_cast<size_t>(kMostTogether) * width);
  while (count > 0) {
    const int64_t run = std::min(count, kMostTogether);
    for (int64_t i = 0; i < run; ++i) {
      const int64_t row = (first + i) / part.columns, column = (first + i) % part.columns;
      std::memcpy(together.data() + static_cast<size_t>(i) * width,
                  part.values->bytes.data() + static_cast<size_t>(column * part.stride + part.start + row) * width,
                  width);
    }
    const formats::StoredTensor some{
        part.values->name, part.values->type, {run}, {together.data(), static_cast<size_t>(run) * width}};
    some.read(0, run, to, into);
    into += run * size_of(to);
    first += run;
    count -= run;
  }
}

void ReleasedSource::read(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  if (part.columns > 0) return read_turned(part, first, count, to, into);
  if (part.scales == nullptr) return part.values->read(part.start + first, count, to, into);
  const int64_t columns = part.values->shape[1], across = part.scales->shape[1];
  while (count > 0) {  // what shares a factor and a row
    const int64_t row = first / columns, column = first % columns;
    const int64_t run = std::min({count, columns - column, kBlock - column % kBlock});
    std::array<float, kBlock> values{};
    float scale = 0;
    part.values->read(first, run, Dtype::f32, values.data());
    part.scales->read(row / kBlock * across + column / kBlock, 1, Dtype::f32, &scale);
    for (float& value : values) value *= scale;
    const formats::StoredTensor product{
        part.values->name,
        formats::StoredType::f32,
        {run},
        {reinterpret_cast<const uint8_t*>(values.data()), sizeof(float) * static_cast<size_t>(run)}};
    product.read(0, run, to, into);
    into += run * size_of(to);
    first += run;
    count -= run;
  }
}

}  // namespace heddle::train
