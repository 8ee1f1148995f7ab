#include "heddle/data/corpus/r_strings.h"

#include <zlib.h>

#include <algorithm>
#include <optional>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

// Numbers of a serialisation, the highest byte first; nothing behind the end.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : rest_(bytes) {}
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  std::optional<uint32_t> next() {
    if (rest_.size() < 4) return std::nullopt;
    uint32_t number = 0;
    for (int i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(rest_[static_cast<size_t>(i)]);
    rest_.remove_prefix(4);
    return number;
  }
  std::optional<std::string_view> bytes(uint32_t count) {
    if (rest_.size() < count) return std::nullopt;
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view rest_;
};

constexpr uint32_t kTypeBits = 0xff, kTexts = 16, kText = 9, kNoText = 0xffffffff;

// The lines of a vector of texts, or nothing where it is another object.
std::optional<std::string> lines_of(std::string_view object) {
  Numbers in(object);
  if (!in.take("X\n")) return std::nullopt;
  const auto version = in.next();
  in.next();  // of R that wrote it
  in.next();  // of R that reads it
  if (version == 3u) {
    const auto name = in.next();  // of the encoding
    if (!name || !in.bytes(*name)) return std::nullopt;
  }
  const auto type = in.next(), count = in.next();
  if (!type || *type != kTexts || !count) return std::nullopt;  // attributes would follow another type
  std::string lines;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto kind = in.next(), size = in.next();
    if (!kind || (*kind & kTypeBits) != kText || !size) return std::nullopt;
    if (*size != kNoText) {
      const auto text = in.bytes(*size);
      if (!text) return std::nullopt;
      lines += *text;
    }
    lines += '\n';
  }
  return lines;
}

}  // namespace

std::vector<std::string> r_texts(std::string_view database, const std::string& place, int64_t most_bytes) {
  std::vector<std::string> texts;
  int64_t total = 0;
  while (!database.empty()) {
    const auto size = Numbers(database).next();
    if (!size) config_error("{}: damaged: its last object has no size", place);
    total += *size;
    if (total > most_bytes) config_error("{}: more than {} bytes", place, most_bytes);
    database.remove_prefix(4);
    std::string object(*size, '\0');
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) throw Error("zlib cannot be initialised");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(database.data()));
    stream.avail_in = static_cast<uInt>(std::min<size_t>(database.size(), uInt(-1)));
    stream.next_out = reinterpret_cast<Bytef*>(object.data());
    stream.avail_out = *size;
    const int code = inflate(&stream, Z_FINISH);
    const bool whole = code == Z_STREAM_END && stream.avail_out == 0;
    const size_t used = stream.total_in;
    inflateEnd(&stream);
    if (!whole) config_error("{}: damaged: an object is cut short or no zlib stream", place);
    database.remove_prefix(used);
    if (auto lines = lines_of(object)) texts.push_back(std::move(*lines));
  }
  return texts;
}

}  // namespace heddle::data
