// Tasks that are decided by likelihood: a context, and choices to go on with, of which one is right.
//
// A task is a file of JSON lines in one of the forms in which EleutherAI's lm-evaluation-harness keeps its
// documents:
//
//   {"query": "…", "choices": ["…", "…"], "gold": 0}        of a multiple_choice task
//   {"arguments": [["…", " …"], ["…", " …"]], "target": 0}  of --log_samples
//
// Other words of its data sets are accepted for the same: question, context, ctx, prompt; endings, options; label,
// answer, answerKey. A choice that does not begin with a blank is set off by one, as there; how long a choice is,
// in characters, does not count that blank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::session {

struct TaskItem {
  struct Choice {
    std::string context, continuation;
    size_t characters = 0;  // characters of the choice itself, without the blank that sets it off
  };
  std::vector<Choice> choices;  // two or more
  size_t gold = 0;              // the right one
};

struct Task {
  std::string name;  // name of its file
  std::vector<TaskItem> items;
};

/// The length of a choice that a model goes on with: as Python's len() counts, less a blank that sets it off.
size_t characters_of(std::string_view continuation);

/// ConfigError naming the file, the line and what is wrong with it; no more than `most` items are read, 0: all.
Task read_task(const std::string& path, int64_t most = 0);
/// Parses a text like a file's; `place` is its name in errors.
Task parse_task(std::string_view text, const std::string& place, int64_t most = 0);

}  // namespace heddle::session
