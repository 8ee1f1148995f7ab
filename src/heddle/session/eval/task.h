// Tasks that are decided by likelihood: a context, and choices to go on with, of which one is right.
//
// A task is a file of JSON lines in one of the forms in which EleutherAI's lm-evaluation-harness keeps its
// documents:
//
//   {"query": "…", "choices": ["…", "…"], "gold": 0}        of a multiple_choice task
//   {"arguments": [["…", " …"], ["…", " …"]], "target": 0}  of --log_samples
//
// with the words that its data sets use for the same: question, context, ctx, prompt; endings, options; label,
// answer, answerKey. A choice that does not begin with a blank is set off by one, as there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::session {

struct TaskItem {
  struct Choice {
    std::string context, continuation;
  };
  std::vector<Choice> choices;  // two or more
  size_t gold = 0;              // the right one
};

struct Task {
  std::string name;  // of its file
  std::vector<TaskItem> items;
};

/// ConfigError naming the file, the line and what is wrong with it; no more than `most` items are read, 0: all.
Task read_task(const std::string& path, int64_t most = 0);
/// The same of a text whose place is called `place`.
Task parse_task(std::string_view text, const std::string& place, int64_t most = 0);

}  // namespace heddle::session
