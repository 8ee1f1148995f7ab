// The whole configuration as TOML, and sizes in bytes as people write them.
#include <array>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/real_text.h"
#include "heddle/config/run_config.h"

namespace heddle::config {

namespace {

// Null: whole.
std::string written(const RunConfig& config, const RunConfig* usual) {
  std::string out, section;
  for (const Setting& s : settings()) {
    if (s.present && !s.present(config)) continue;
    const bool both = usual != nullptr && (!s.present || s.present(*usual));
    if (both && s.get(config) == s.get(*usual)) continue;
    const size_t dot = s.key.rfind('.');
    const std::string name = s.key.substr(dot == std::string::npos ? 0 : dot + 1);
    const std::string own = dot == std::string::npos ? "" : s.key.substr(0, dot);
    if (own != section) {
      out += fmt::format("\n[{}]\n", own);
      section = own;
    }
    out += fmt::format("{} = {}\n", name, s.text_of(s.get(config)));
  }
  return out;
}

}  // namespace

std::string toml_of(const RunConfig& config) { return written(config, nullptr); }
std::string toml_of(const RunConfig& config, const RunConfig& usual) { return written(config, &usual); }

int64_t parse_bytes(std::string_view text) {
  double count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_real(text.data(), end, count);
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  static constexpr std::array<std::pair<std::string_view, double>, 12> units{{{"", 1},
                                                                              {"B", 1},
                                                                              {"KiB", 0x1p10},
                                                                              {"MiB", 0x1p20},
                                                                              {"GiB", 0x1p30},
                                                                              {"TiB", 0x1p40},
                                                                              {"PiB", 0x1p50},
                                                                              {"KB", 1e3},
                                                                              {"MB", 1e6},
                                                                              {"GB", 1e9},
                                                                              {"TB", 1e12},
                                                                              {"PB", 1e15}}};
  double factor = 0;
  for (const auto& [name, size] : units) {
    if (name == unit) factor = size;
  }
  const double bytes = count * factor;
  if (error != std::errc() || factor == 0 || !(bytes >= 0) || bytes > 9e18) {
    config_error("'{}' is no size, accepted: bytes or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB",
                 text.substr(0, 40));
  }
  return static_cast<int64_t>(std::llround(bytes));
}

}  // namespace heddle::config
