#include "heddle/cli/program.h"

#include <exception>
#include <new>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/say.h"
#include "heddle/cli/commands.h"

namespace heddle::cli {

namespace {

void complain(const char* what, const char* before = "", const char* behind = "") noexcept {
  try {
    say(stderr, "heddle: {}{}\n{}", before, escaped_lines(what), behind);
  } catch (...) {  // no memory for a better text
    say_text(stderr, "heddle: out of memory on the host\n");
  }
}

}  // namespace

int run_program(int count, char** arguments) noexcept {
  outlive_readers();
  try {
    const int status = run_command_line(count, arguments);
    check_heard();
    return status;
  } catch (const ConfigError& error) {
    complain(error.what());
    return kBadInput;
  } catch (const InternalError& error) {
    complain(error.what(), "this is a bug of Heddle: ",
             "heddle: please report it with the command and the output of `heddle doctor`\n");
  } catch (const std::bad_alloc&) {
    complain("out of memory on the host");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return kFailed;
}

}  // namespace heddle::cli
