#include "python/core/core.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include "heddle/base/holder.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/program.h"
#include "python/core/guarded.h"

namespace heddle::core {

Failure::Failure(Kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}
Failure::~Failure() = default;

std::string version() { return HEDDLE_VERSION; }

int run_program(int count, char** arguments) { return cli::run_program(count, arguments); }

Answer run_command(const std::vector<std::string>& arguments, const Listener& listener) {
  static std::mutex one_at_a_time;
  const std::lock_guard alone(one_at_a_time);
  Answer answer;
  std::mutex printing;
  Holder here;
  here.print = [&](std::FILE* to, std::string_view text) {
    const std::lock_guard lock(printing);
    if (to == stdout) {
      answer.text += text;
    } else if (listener.line) {
      listener.line(text);
    }
  };
  if (listener.progress) here.progress = listener.progress;
  if (listener.step) here.step = listener.step;
  const HeldBy held(here);
  std::vector<std::string> words{"heddle"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  guarded([&] { answer.status = cli::run_command_line(static_cast<int>(pointers.size()), pointers.data()); });
  return answer;
}

void stop_command(bool gently) { ask_to_stop(gently ? Stop::gently : Stop::at_once); }

}  // namespace heddle::core
