// The other end of a descriptor: a terminal, which has a width and may have colours, or none.
#pragma once

#include <string_view>

namespace heddle::observe {

/// Takes away the line that the cursor stands in.
inline constexpr std::string_view kClearLine = "\r\x1b[K";

struct Terminal {
  bool interactive = false;
  bool colour = false;
  bool unicode = false;
  int columns = 0;  // 0: no limit, for it is no terminal
};

/// Asks isatty, TERM, NO_COLOR (any value that is not empty: no colour) and the locale's LC_ALL, LC_CTYPE, LANG.
Terminal describe_terminal(int descriptor);

/// Columns of the terminal behind the descriptor, `otherwise` when there is none.
int terminal_columns(int descriptor, int otherwise = 100);

}  // namespace heddle::observe
