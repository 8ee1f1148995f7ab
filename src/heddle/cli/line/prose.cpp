#include "heddle/cli/line/prose.h"

#include "heddle/base/say.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

void print_prose(const std::string& text) {
  const int columns = observe::describe_terminal(1).columns;
  if (columns > 0) {
    for (const std::string& line : observe::wrapped(text, columns)) say("{}\n", line);
  } else {
    say("{}\n", text);
  }
}

}  // namespace heddle::cli
