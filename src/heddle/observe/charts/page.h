// The frame of every page: one HTML file that needs nothing else, neither network nor scripts from elsewhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heddle::observe {

/// A figure that a reader wants first.
struct VerdictCard {
  enum class Mood { neutral, good, bad };
  std::string label;
  std::string value;
  std::string note;
  Mood mood = Mood::neutral;
  bool words = false;  // not a number: it gets more room and smaller letters
};

/// Returns a card as HTML. Its contents are escaped here, as are the fields of a page, but for `head` and `body`.
std::string card_html(const VerdictCard& card);

/// "" around nothing. A wide one fills the row of its grid.
std::string panel(const std::string& html, bool wide);

struct Page {
  /// Adds a section with its name, also in the list of contents; nothing where there are no panels.
  void add_section(const std::string& id, const std::string& heading, const std::string& panels);

  std::string brand, title, subtitle;
  std::string head;                                           // below the title: chips, cards
  std::vector<std::pair<std::string, std::string>> contents;  // identifier of a section, its name
  std::string figures_json;                                   // the page's figures as numbers; may be empty
  std::string body;
};
std::string page_html(const Page& page);

/// Today, "2026-11-22 15:45 UTC".
std::string date_text();
/// As above, for seconds since 1970.
std::string date_text(double unix_s);

}  // namespace heddle::observe
