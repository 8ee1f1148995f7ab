#include "heddle/observe/memory/memory_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/observe/memory/memory_words.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using simulate::BytesOfKinds;
using simulate::MemoryCurve;
using simulate::MemoryKind;
using simulate::sum_of;

constexpr int kRows = 9, kMostColumns = 84;

struct Look {
  char letter;
  int shade;  // one of the 256 colours of terminals
};
constexpr std::array<Look, simulate::kMemoryKinds> kLooks = {{{'W', 25},
                                                              {'G', 31},
                                                              {'O', 97},
                                                              {'S', 95},
                                                              {'b', 29},
                                                              {'a', 166},
                                                              {'f', 100},
                                                              {'o', 168},
                                                              {'g', 124},
                                                              {'h', 34},
                                                              {'s', 240}}};

// The moment of most in each of so many equal stretches of the step.
std::vector<BytesOfKinds> columns_of(const MemoryCurve& curve, int columns) {
  std::vector<BytesOfKinds> all(static_cast<size_t>(columns));
  std::vector<bool> seen(all.size(), false);
  const double scale = columns / std::max(curve.until_us, 1e-9);
  for (size_t i = 0; i < curve.at_us.size(); ++i) {
    const auto c = static_cast<size_t>(std::clamp(curve.at_us[i] * scale, 0.0, columns - 1.0));
    if (!seen[c] || sum_of(curve.bytes[i]) > sum_of(all[c])) all[c] = curve.bytes[i];
    seen[c] = true;
  }
  for (size_t c = 1; c < all.size(); ++c)
    if (!seen[c]) all[c] = all[c - 1];
  return all;
}

// The kind in whose layer a height lies, or none above all.
int kind_at(const BytesOfKinds& kinds, double height) {
  double top = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    top += static_cast<double>(kinds[k]);
    if (height < top) return static_cast<int>(k);
  }
  return -1;
}

std::string row_of(const std::vector<BytesOfKinds>& columns, double height, bool colour) {
  std::string line;
  int shade = -1;
  for (const BytesOfKinds& column : columns) {
    const int kind = kind_at(column, height);
    const int wanted = kind < 0 ? -1 : kLooks[static_cast<size_t>(kind)].shade;
    if (colour && wanted != shade) {
      line += wanted < 0 ? "\x1b[0m" : fmt::format("\x1b[48;5;{};38;5;231m", wanted);
      shade = wanted;
    }
    line += kind < 0 ? ' ' : kLooks[static_cast<size_t>(kind)].letter;
  }
  if (shade >= 0) line += "\x1b[0m";
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::string kinds_table(const MemoryCurve& curve, int columns, const Terminal& terminal) {
  const BytesOfKinds& most = curve.most;
  Table table({{""}, {"kind"}, {"at the peak", Align::right}, {"its own most", Align::right}});
  for (size_t k = most.size(); k-- > 0;) {
    if (most[k] == 0) continue;
    table.row({std::string(1, kLooks[k].letter), std::string(word_of(static_cast<MemoryKind>(k))),
               bytes_text(static_cast<double>(curve.peak.of_kinds[k])), bytes_text(static_cast<double>(most[k]))});
  }
  return table.text(terminal.unicode, columns);
}

}  // namespace

std::string memory_text(const MemoryCurve& curve, int columns, const Terminal& terminal) {
  if (curve.at_us.empty() || curve.peak.bytes <= 0) return "";
  const std::string top = bytes_text(static_cast<double>(curve.peak.bytes));
  const int margin = display_width(top) + 1;
  const int width = std::clamp(columns, 40, kMostColumns) - margin - 1;
  const std::vector<BytesOfKinds> drawn = columns_of(curve, width);
  const auto peak =
      static_cast<int>(std::clamp(curve.peak.at_us / std::max(curve.until_us, 1e-9) * width, 0.0, width - 1.0));
  std::string text = fmt::format("{} over the step\n{:{}}{}\n", memory_name(curve.space), "", margin + 1 + peak,
                                 terminal.unicode ? "▼" : "v");
  for (int r = kRows; r-- > 0;) {
    const double height = (r + 0.5) / kRows * static_cast<double>(curve.peak.bytes);
    text += fmt::format("{:>{}} {}{}\n", r + 1 == kRows ? top : "", margin - 1, terminal.unicode ? "│" : "|",
                        row_of(drawn, height, terminal.colour));
  }
  text += fmt::format("{:>{}} {}", "0", margin - 1, terminal.unicode ? "└" : "+");
  for (int i = 0; i < width; ++i) text += terminal.unicode ? "─" : "-";
  text += "\n" + kinds_table(curve, std::max(columns, 40), terminal);
  for (const std::string& line : wrapped(peak_words(curve), std::max(columns, 40))) text += line + "\n";
  return text;
}

}  // namespace heddle::observe
