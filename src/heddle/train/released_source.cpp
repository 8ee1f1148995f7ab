#include "heddle/train/released_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"

namespace heddle::train {

namespace {

constexpr std::string_view kHead = "lm_head.weight";

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

/// The tensors that may hold a weight in few bits, by the endings of their names (formats/quantised.h).
bool has_values(const formats::ReleasedFiles& files, const std::string& name) {
  constexpr std::string_view kEndings[] = {"", "_packed", "_blocks"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return files.find(name + std::string(ending)) != nullptr; });
}

bool holds_whole_numbers(formats::StoredType type) {
  return type == formats::StoredType::i64 || type == formats::StoredType::i32 || type == formats::StoredType::u8 ||
         type == formats::StoredType::i8;
}

/// True of factors of activations, for inference in few bits. No weight needs them.
bool is_of_inference(std::string_view name) {
  constexpr std::string_view kEndings[] = {".input_scale", ".input_global_scale", ".activation_scale", ".k_scale",
                                           ".v_scale"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

ReleasedSource::ReleasedSource(const std::string& path, const std::vector<ParameterTensor>& parameters)
    : files_(path), parts_(parameters.size()) {
  std::set<std::string, std::less<>> used;
  std::vector<std::string> missing, misshapen, copies, unknown;
  const auto expect = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const formats::StoredTensor* stored = files_.find(name);
    if (!used.insert(name).second) return stored;
    if (stored == nullptr) {
      missing.push_back(name);
    } else if (stored->shape != shape) {
      misshapen.push_back(wrong_shape(name, stored->shape, shape));
    }
    return stored;
  };
  const config::Family* family = config::family_beside(path);
  const std::vector<ReleasedSlice> slices = released_slices(parameters);
  const bool own_head =
      std::any_of(slices.begin(), slices.end(), [](const ReleasedSlice& slice) { return slice.name == kHead; });
  for (const ReleasedSlice& slice : slices) {
    // As the folder's family has it; else as any that has a tensor of this shape, or one at all.
    std::vector<config::ReleasedPlace> places =
        config::places_of(slice.name, slice.shape, slice.experts, slice.joined, family);
    if (slice.name == config::kEmbedding && !own_head && files_.find(slice.name) == nullptr) {
      // A tied matrix may lie in the file by the head's name alone.
      const std::vector<config::ReleasedPlace> heads =
          config::places_of(std::string(kHead), slice.shape, slice.experts, slice.joined, family);
      places.insert(places.end(), heads.begin(), heads.end());
    }
    auto found = std::find_if(places.begin(), places.end(), [&](const config::ReleasedPlace& place) {
      const formats::StoredTensor* stored = files_.find(place.name);
      return stored != nullptr && stored->shape == placed(place, slice).shape;
    });
    if (found == places.end()) {
      found = std::find_if(places.begin(), places.end(),
                           [&](const config::ReleasedPlace& place) { return has_values(files_, place.name); });
    }
    const auto own = std::find_if(places.begin(), places.end(),
                                  [&](const config::ReleasedPlace& each) { return each.name == slice.name; });
    const config::ReleasedPlace place = placed(found == places.end() ? *own : *found, slice);
    HEDDLE_CHECK(!place.is_whole || !used.contains(place.name), "two parameters want '{}'", place.name);
    formats::QuantisedTensor::Findings findings;
    const auto quantised = formats::QuantisedTensor::find(files_, place.name, place.shape, findings);
    const formats::StoredTensor* stored = quantised ? nullptr : expect(place.name, place.shape);
    if (quantised && used.insert(place.name).second) {
      missing.insert(missing.end(), findings.missing.begin(), findings.missing.end());
      misshapen.insert(misshapen.end(), findings.wrong.begin(), findings.wrong.end());
    }
    used.insert(findings.used.begin(), findings.used.end());
    const bool table = parameters[slice.parameter].parameter.start == model::Parameter::Start::hashed_experts;
    if (stored != nullptr && !table && holds_whole_numbers(stored->type))
      misshapen.push_back(fmt::format("{} of the type {}", place.name, formats::name_of(stored->type)));
    parts_[slice.parameter].push_back({stored, quantised, place, slice.columns(), slice.first, slice.count, table});
  }
  const bool has_head = used.contains(kHead);
  const auto has = [&](std::string_view name) { return files_.find(std::string(name)) != nullptr; };
  for (const auto& [name, stored] : files_.tensors()) {
    if (used.contains(name) || config::is_passed_over(name, has) || is_of_inference(name)) continue;
    if (stored->bytes.empty()) continue;  // Transformers stores shared experts of width 0
    const formats::StoredTensor* original = nullptr;
    for (const config::ReleasedPlace& place :
         config::places_of(std::string(config::original_of(name, has_head)), {}, 0))
      if (original == nullptr) original = files_.find(place.name);
    if (original == nullptr && !own_head && config::original_of(name, has_head) == config::kEmbedding)
      original = files_.find(kHead);
    if (original == nullptr) {
      unknown.push_back(formats::printable(name));
    } else if (original->type != stored->type || !std::ranges::equal(original->bytes, stored->bytes)) {
      copies.push_back(name);
    }
  }
  std::string wrong;
  list_some(wrong, "tensors are missing", missing);
  list_some(wrong, "have another shape or type", misshapen);
  list_some(wrong, "belong nowhere", unknown);
  list_some(wrong, "should repeat the embedding or head but differ", copies);
  if (!wrong.empty()) config_error("{}: not this model: {}", files_.path(), wrong);
  for (std::vector<Part>& parts : parts_)
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.first < b.first; });
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].parameter.start == model::Parameter::Start::hashed_experts) check_table(i, parameters[i]);
  }
}

void ReleasedSource::check_table(size_t index, const ParameterTensor& table) const {
  const int64_t V = table.tensor.shape[0], k = table.tensor.shape[1];
  std::vector<double> row(static_cast<size_t>(k));
  for (int64_t id = 0; id < V; ++id) {
    read(index, id * k, k, Dtype::f64, row.data());
    std::sort(row.begin(), row.end());
    const bool whole = std::all_of(row.begin(), row.end(), [](double x) { return x == std::floor(x); });
    if (whole && row.front() >= 0 && row.back() < table.parameter.deviation &&
        std::adjacent_find(row.begin(), row.end()) == row.end())
      continue;
    config_error("{}: '{}' has experts {} for token id {}, {} different ones of 0 to {} are expected",
                 files_.path(), table.tensor.name, fmt::join(row, ", "), id, k, table.parameter.deviation - 1);
  }
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

void ReleasedSource::read(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  if (part.quantised) return read_quantised(part, first, count, to, into);
  if (!part.place.is_whole) return read_stacked(part, first, count, to, into);
  const formats::StoredType type = part.values->type;
  if (part.whole_numbers && (type == formats::StoredType::i64 || type == formats::StoredType::i32))
    return read_whole_numbers(part, first, count, to, into);
  part.values->read(first, count, to, into);
}

// By way of numbers that hold them exactly.
void ReleasedSource::read_whole_numbers(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  std::vector<double> numbers(static_cast<size_t>(count));
  const auto take = [&]<class Number>(std::vector<Number> stored, Dtype as) {
    part.values->read(first, count, as, stored.data());
    std::copy(stored.begin(), stored.end(), numbers.begin());
  };
  if (part.values->type == formats::StoredType::i64) {
    take(std::vector<int64_t>(numbers.size()), Dtype::i64);
  } else {
    take(std::vector<int32_t>(numbers.size()), Dtype::i32);
  }
  const formats::StoredTensor wide{
      part.values->name,
      formats::StoredType::f64,
      {count},
      {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(double)}};
  wide.read(0, count, to, into);
}

// Some elements at a time, put side by side.
void ReleasedSource::read_stacked(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  constexpr int64_t kSome = 4096;
  const int64_t width = size_of(part.values->type);
  std::vector<uint8_t> beside(static_cast<size_t>(kSome * width));
  while (count > 0) {
    const int64_t run = std::min(count, kSome);
    const uint8_t* from = part.values->bytes.data();
    for (int64_t i = 0; i < run; ++i)
      std::memcpy(beside.data() + i * width, from + part.place.at(first + i, part.columns) * width,
                  static_cast<size_t>(width));
    const formats::StoredTensor values{
        part.values->name, part.values->type, {run}, {beside.data(), static_cast<size_t>(run * width)}};
    values.read(0, run, to, into);
    into += run * size_of(to);
    first += run;
    count -= run;
  }
}

void ReleasedSource::read_quantised(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into) {
  constexpr int64_t kSome = 4096;
  const config::ReleasedPlace& place = part.place;
  std::vector<float> numbers(static_cast<size_t>(kSome));
  while (count > 0) {  // one row at a time
    const int64_t row = first / part.columns, column = first % part.columns;
    const int64_t run = std::min({count, part.columns - column, kSome});
    const std::span<float> some(numbers.data(), static_cast<size_t>(run));
    if (place.is_whole) {
      part.quantised->read(first, some);
    } else if (part.quantised->is_transposed()) {  // here the rows of a matrix follow one another
      const int64_t rows = place.shape.back(), matrix = rows * part.columns;
      const int64_t at = place.first / matrix * rows + place.first % matrix + row * place.row_step;
      part.quantised->read(at * part.columns + column, some);
    } else if (place.column_step == 1) {
      part.quantised->read(place.at(first, part.columns), some);
    } else {
      for (int64_t i = 0; i < run; ++i)
        part.quantised->read(place.at(first + i, part.columns), some.subspan(static_cast<size_t>(i), 1));
    }
    const formats::StoredTensor product{
        place.name,
        formats::StoredType::f32,
        {run},
        {reinterpret_cast<const uint8_t*>(numbers.data()), sizeof(float) * static_cast<size_t>(run)}};
    product.read(0, run, to, into);
    into += run * size_of(to);
    first += run;
    count -= run;
  }
}

}  // namespace heddle::train
