#include "heddle/observe/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

namespace heddle::observe {

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool says_utf8(std::string_view locale) {
  std::string lower;
  for (const char letter : locale) {
    if (letter != '-') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return lower.find("utf8") != lower.npos;
}

}  // namespace

Terminal describe_terminal(int descriptor) {
  Terminal terminal;
  const std::string_view kind = environment("TERM");
  terminal.interactive = ::isatty(descriptor) == 1 && kind != "dumb";
  terminal.colour = terminal.interactive && environment("NO_COLOR").empty();
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const std::string_view locale = environment(name); !locale.empty()) {
      terminal.unicode = says_utf8(locale);
      break;
    }
  }
  terminal.columns = terminal_columns(descriptor, 0);
  return terminal;
}

int terminal_columns(int descriptor, int otherwise) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace heddle::observe
