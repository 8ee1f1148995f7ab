#include "heddle/observe/memory/memory_page.h"

#include <fmt/format.h>

#include "heddle/observe/charts/page.h"
#include "heddle/observe/memory/memory_words.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

std::string cards(const std::vector<MemoryView>& views) {
  std::string text;
  for (const MemoryView& view : views) {
    const simulate::MemoryCurve& curve = view.curve;
    const auto peak = static_cast<double>(curve.peak.bytes), stays = static_cast<double>(curve.persistent_bytes);
    text += card_html({memory_name(curve.space) + " at the peak", bytes_text(peak),
                       fmt::format("{} persist, {} come and go", bytes_text(stays), bytes_text(peak - stays))});
    for (const Level& level : view.levels) text += card_html({level.label, bytes_text(level.y), ""});
  }
  return fmt::format("<div class=\"cards\">\n{}</div>\n", text);
}

}  // namespace

std::string memory_page(const MemoryPage& from) {
  Page page;
  page.brand = "Heddle · memory";
  page.title = from.title;
  page.subtitle = from.subtitle;
  page.head = cards(from.views);
  page.figures_json = from.figures_json;
  for (const MemoryView& view : from.views) {
    page.add_section(std::string(ir::name_of(view.curve.space)), memory_name(view.curve.space),
                     panel(memory_figure(view), true) + panel(peak_values_table(view), true));
  }
  return page_html(page);
}

}  // namespace heddle::observe
