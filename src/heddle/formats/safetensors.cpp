#include "heddle/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::formats {

namespace {

constexpr int64_t kMostHeaderBytes = 100'000'000;
constexpr size_t kMostDims = 8;
constexpr std::string_view kMetadata = "__metadata__";

// Names in the order of StoredType.
const std::vector<std::string>& type_names() {
  static const std::vector<std::string> names{"F64", "F32", "F16",     "BF16",    "I64",
                                              "I32", "U8",  "F8_E4M3", "F8_E8M0", "I8"};
  return names;
}

struct HeaderEntry {
  std::string name;
  std::optional<StoredType> type;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> range;  // data_offsets: begin, end
};

// Reads the header as it is parsed: no tree of the JSON is built, and nothing nests deeper than the format does.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;

  bool key(string_t& name) override {
    if (depth_ == 1) {
      at_metadata_ = name == kMetadata;
      if (!at_metadata_) entries.push_back({.name = std::move(name)});
    } else {
      field_ = std::move(name);
    }
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ > 2 || in_array_) refuse("an object where the format has none");
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || at_metadata_ || in_array_) refuse("a list where the format has none");
    HeaderEntry& entry = entries.back();
    if (field_ == "shape" && !entry.shape) {
      entry.shape.emplace();
      into_ = &*entry.shape;
    } else if (field_ == "data_offsets" && !entry.range) {
      entry.range.emplace();
      into_ = &*entry.range;
    } else {
      refuse(fmt::format("field '{}' is a list or stands twice", printable(field_)));
    }
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("the number {}, a size or offset is 0 or more", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) refuse("a number where the format has none");
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse(fmt::format("the number {}, larger than any file", value));
    if (into_->size() == kMostDims) refuse(fmt::format("a list of more than {} numbers", kMostDims));
    into_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override {
    refuse(fmt::format("the number {}, whole numbers are accepted", printable(text)));
  }
  bool string(string_t& text) override {
    if (in_array_ || depth_ != 2) refuse("a string where the format has none");
    if (at_metadata_) {
      if (!metadata.emplace(field_, std::move(text)).second) refuse(fmt::format("'{}' twice", printable(field_)));
      return true;
    }
    if (field_ != "dtype" || entries.back().type) {
      refuse(fmt::format("field '{}' is a string or stands twice", printable(field_)));
    }
    const auto at = std::find(type_names().begin(), type_names().end(), text);
    if (at == type_names().end()) {
      refuse(fmt::format("type '{}', accepted are {}", printable(text), fmt::join(type_names(), ", ")));
    }
    entries.back().type = static_cast<StoredType>(at - type_names().begin());
    return true;
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("true or false"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    config_error("{}: the header is not JSON (byte {})", path_, position + 8);
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    if (at_metadata_) config_error("{}: the metadata has {}", path_, found);
    if (entries.empty()) config_error("{}: the header has {}", path_, found);
    config_error("{}: tensor '{}' has {}", path_, printable(entries.back().name), found);
  }

  const std::string& path_;
  int depth_ = 0;
  bool in_array_ = false, at_metadata_ = false;
  std::string field_;
  std::vector<int64_t>* into_ = nullptr;
};

// Bytes of a tensor of that shape, or nothing when they exceed `most`.
std::optional<int64_t> bytes_of(StoredType type, const std::vector<int64_t>& shape, int64_t most) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = size_of(type);
  for (const int64_t size : shape) {
    if (size > most / bytes) return std::nullopt;
    bytes *= size;
  }
  return bytes <= most ? std::optional(bytes) : std::nullopt;
}

float widen_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  float size = 0;
  if (exponent == 31) {
    size = mantissa == 0 ? INFINITY : NAN;
  } else {
    size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

struct Eight {
  uint8_t bits;
};
struct PowerOfTwo {
  uint8_t exponent;
};

float widen_eight(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  const bool none = (bits & 127) == 127;
  const float size = none            ? NAN
                     : exponent == 0 ? std::ldexp(mantissa, -9)
                                     : std::ldexp(mantissa + 8, exponent - 10);
  return (bits & 128) != 0 ? -size : size;
}

// A double goes to bf16 through float rounded to odd, so that it is rounded to nearest once.
bf16 narrow(double value) {
  auto single = static_cast<float>(value);
  if (std::isfinite(single) && static_cast<double>(single) != value) {
    auto bits = std::bit_cast<uint32_t>(single);
    if (std::abs(static_cast<double>(single)) > std::abs(value)) --bits;
    single = std::bit_cast<float>(bits | 1u);
  }
  return {single};
}

template <class From, class To>
void convert(const uint8_t* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    if constexpr (std::is_same_v<From, uint16_t>) {
      to[i] = static_cast<To>(widen_half(value));
    } else if constexpr (std::is_same_v<From, Eight>) {
      to[i] = static_cast<To>(widen_eight(value.bits));
    } else if constexpr (std::is_same_v<From, PowerOfTwo>) {
      to[i] = static_cast<To>(value.exponent == 255 ? NAN : std::ldexp(1.0F, value.exponent - 127));
    } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, bf16>) {
      to[i] = narrow(value);
    } else {
      to[i] = static_cast<To>(static_cast<std::conditional_t<std::is_same_v<From, double>, double, float>>(value));
    }
  }
}

template <class To>
void convert(const StoredTensor& tensor, const uint8_t* from, int64_t count, To* to) {
  switch (tensor.type) {
    case StoredType::f64: return convert<double>(from, count, to);
    case StoredType::f32: return convert<float>(from, count, to);
    case StoredType::f16: return convert<uint16_t>(from, count, to);
    case StoredType::bf16: return convert<bf16>(from, count, to);
    case StoredType::f8_e4m3: return convert<Eight>(from, count, to);
    case StoredType::f8_e8m0: return convert<PowerOfTwo>(from, count, to);
    default:
      config_error("tensor '{}' is {}, a floating type is needed", printable(tensor.name), name_of(tensor.type));
  }
}

}  // namespace

std::string_view name_of(StoredType type) { return type_names()[static_cast<size_t>(type)]; }

StoredType stored_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return StoredType::f64;
    case Dtype::f32: return StoredType::f32;
    case Dtype::bf16: return StoredType::bf16;
    case Dtype::i64: return StoredType::i64;
    case Dtype::i32: return StoredType::i32;
    case Dtype::u8: return StoredType::u8;
    case Dtype::u16: break;  // of no tensor that is stored
  }
  internal_error("a type without a name in files");
}

int64_t size_of(StoredType type) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2, 8, 4, 1, 1, 1, 1};
  return kSizes[static_cast<size_t>(type)];
}

std::string printable(std::string_view name) { return escaped(name, 100); }

void StoredTensor::read(int64_t first, int64_t count, Dtype to, void* into) const {
  HEDDLE_CHECK(first >= 0 && count >= 0 && first <= elements() - count, "elements {}+{} of '{}', which has {}",
               first, count, printable(name), elements());
  const uint8_t* from = bytes.data() + first * size_of(type);
  if (stored_type(to) == type) {
    if (count > 0) std::memcpy(into, from, static_cast<size_t>(count * size_of(type)));
    return;
  }
  switch (to) {
    case Dtype::f64: return convert(*this, from, count, static_cast<double*>(into));
    case Dtype::f32: return convert(*this, from, count, static_cast<float*>(into));
    case Dtype::bf16: return convert(*this, from, count, static_cast<bf16*>(into));
    default:
      config_error("tensor '{}' is {}, {} is needed", printable(name), name_of(type), name_of(stored_type(to)));
  }
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const int64_t size = file_.size_bytes();
  if (size < 8) config_error("{}: {} bytes, a safetensors file has at least 8", path, size);
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(file_.data()), static_cast<size_t>(size))
          .starts_with(kPointer))
    config_error("{}: a pointer of Git LFS in place of the file; `git lfs pull` fetches it", path);
  uint64_t length = 0;
  std::memcpy(&length, file_.data(), 8);
  if (length > static_cast<uint64_t>(kMostHeaderBytes)) {
    config_error("{}: a header of {} bytes, at most {} are accepted", path, length, kMostHeaderBytes);
  }
  const int64_t data_start = 8 + static_cast<int64_t>(length), data_bytes = size - data_start;
  if (data_bytes < 0) {
    config_error("{}: a header of {} bytes in a file of {}; the file is cut or no safetensors", path, length, size);
  }
  header_ = {file_.data(), static_cast<size_t>(data_start)};

  HeaderReader reader(file_.path());
  const char* text = reinterpret_cast<const char*>(file_.data()) + 8;
  if (length == 0 || text[0] != '{') config_error("{}: the header does not begin with '{{'", path);
  nlohmann::json::sax_parse(text, text + length, &reader);
  metadata_ = std::move(reader.metadata);

  const uint8_t* data = file_.data() + data_start;
  for (HeaderEntry& e : reader.entries) {
    const std::string name = printable(e.name);
    if (!e.type || !e.shape || !e.range) {
      config_error("{}: tensor '{}' lacks its {}", path, name,
                   !e.type    ? "dtype"
                   : !e.shape ? "shape"
                              : "data_offsets");
    }
    if (e.range->size() != 2 || e.range->front() > e.range->back()) {
      config_error("{}: tensor '{}' has data_offsets [{}], a begin and an end are expected", path, name,
                   fmt::join(*e.range, ", "));
    }
    const int64_t begin = e.range->front(), end = e.range->back();
    if (end > data_bytes) {
      config_error("{}: tensor '{}' ends at byte {} of the data, which has {}; the file is cut", path, name, end,
                   data_bytes);
    }
    const std::optional<int64_t> bytes = bytes_of(*e.type, *e.shape, data_bytes);
    if (!bytes || *bytes != end - begin) {
      config_error("{}: tensor '{}' of {} [{}] has {} bytes", path, name, name_of(*e.type),
                   fmt::join(*e.shape, ", "), end - begin);
    }
    tensors_.push_back(
        {std::move(e.name), *e.type, std::move(*e.shape), {data + begin, static_cast<size_t>(end - begin)}});
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tuple(a.bytes.data(), a.bytes.size(), std::string_view(a.name)) <
           std::tuple(b.bytes.data(), b.bytes.size(), std::string_view(b.name));
  });
  int64_t reached = 0;
  for (const StoredTensor& tensor : tensors_) {
    const int64_t begin = tensor.bytes.data() - data;
    if (begin != reached) {
      config_error("{}: tensor '{}' begins at byte {} of the data, the one before it ends at {}", path,
                   printable(tensor.name), begin, reached);
    }
    reached += static_cast<int64_t>(tensor.bytes.size());
    if (!by_name_.emplace(tensor.name, by_name_.size()).second) {
      config_error("{}: two tensors are named '{}'", path, printable(tensor.name));
    }
  }
  if (reached != data_bytes) {
    config_error("{}: {} bytes after the last tensor belong to none", path, data_bytes - reached);
  }
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& [known, index] : by_name_) names.push_back(known);
  config_error("{}: no tensor '{}'{}", path(), printable(name), did_you_mean(name, names));
}

int64_t TensorHeading::size_bytes() const {
  const std::optional<int64_t> bytes = bytes_of(stored_type(dtype), shape, INT64_MAX);
  HEDDLE_CHECK(bytes, "'{}' has more bytes than a file can", name);
  return *bytes;
}

void sort_for_file(std::vector<TensorHeading>& headings) {
  std::sort(headings.begin(), headings.end(), [](const TensorHeading& a, const TensorHeading& b) {
    if (size_of(a.dtype) != size_of(b.dtype)) return size_of(a.dtype) > size_of(b.dtype);
    return a.name < b.name;
  });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorHeading>& headings,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, OutputFile::Open::replace, OutputFile::Access::owner) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::map<std::string_view, int> names;
  for (const TensorHeading& h : headings) {
    HEDDLE_CHECK(names.emplace(h.name, 0).second && h.name != kMetadata, "two tensors are named '{}'", h.name);
    HEDDLE_CHECK(h.shape.size() <= kMostDims, "'{}' has {} dims", h.name, h.shape.size());
    const int64_t end = promised_bytes_ + h.size_bytes();
    // push_back: operator[] of an ordered object searches from the start.
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back(
        {h.name,
         {{"dtype", name_of(stored_type(h.dtype))}, {"shape", h.shape}, {"data_offsets", {promised_bytes_, end}}}});
    promised_bytes_ = end;
  }
  const std::string text = header.dump();
  const uint64_t length = (text.size() + 7) / 8 * 8;
  HEDDLE_CHECK(length <= static_cast<uint64_t>(kMostHeaderBytes), "{}: a header of {} bytes", path, length);
  header_.assign(reinterpret_cast<const char*>(&length), 8);
  header_ += text;
  header_.resize(8 + length, ' ');
  file_.write(header_);
  promised_bytes_ += static_cast<int64_t>(header_.size());
}

void SafetensorsWriter::write(const void* data, size_t size_bytes) { file_.write(data, size_bytes); }

void SafetensorsWriter::commit() {
  HEDDLE_CHECK(file_.size_bytes() == promised_bytes_, "{}: {} bytes written, {} promised", file_.path(),
               file_.size_bytes(), promised_bytes_);
  file_.commit();
}

}  // namespace heddle::formats
