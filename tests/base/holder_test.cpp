// A program that holds Heddle: it takes what would be printed, and ends work early.
#include "heddle/base/holder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>

#include "heddle/base/parallel.h"
#include "heddle/base/say.h"

namespace heddle {
namespace {

TEST(Holder, takes_the_answer_and_the_warnings) {
  std::string answer, lines;
  std::mutex printing;
  Holder here;
  here.print = [&](std::FILE* to, std::string_view text) {
    const std::lock_guard lock(printing);
    (to == stdout ? answer : lines) += text;
  };
  {
    const HeldBy held(here);
    EXPECT_EQ(holder(), &here);
    say("{}\n", 42);
    say(stderr, "heddle: warning: {}\n", "wide");
    write_now(2, "now\n");
    for_each_index(4, [](int64_t) { say("."); });
    check_heard();  // nothing was written to a stream, so nothing can be unheard
  }
  EXPECT_EQ(answer, "42\n....");
  EXPECT_EQ(lines, "heddle: warning: wide\nnow\n");
  EXPECT_EQ(holder(), nullptr);
}

TEST(Holder, ends_work_at_once_or_gently) {
  Holder here;
  here.print = [](std::FILE*, std::string_view) {};
  const HeldBy held(here);
  std::atomic<int> done = 0;
  const auto work = [&] {
    for_each_index(1000, [&](int64_t index) {
      if (index == 10) ask_to_stop(Stop::at_once);
      ++done;
    });
  };
  EXPECT_THROW(work(), Stopped);
  EXPECT_LT(done, 1000);
  ask_to_stop(Stop::gently);
  EXPECT_EQ(asked_to_stop(), Stop::gently);
  EXPECT_NO_THROW(check_stop());
  {
    const HeldBy again(here);  // the next call of the same program
    EXPECT_EQ(asked_to_stop(), Stop::none);
  }
}

}  // namespace
}  // namespace heddle
