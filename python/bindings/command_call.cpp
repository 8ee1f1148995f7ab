#include "python/bindings/command_call.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace heddle::python {

namespace nb = nanobind;

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between looks for signals

// One command at a time: the engine's holder is one for the process.
std::timed_mutex running;
std::atomic<std::thread::id> runs_on;

// Waits for its turn; KeyboardInterrupt ends the wait.
std::unique_lock<std::timed_mutex> turn() {
  if (runs_on.load() == std::this_thread::get_id())
    throw core::Failure(core::Failure::Kind::input,
                        "a function that is called for a step or for progress can't "
                        "run another command of heddle");
  std::unique_lock<std::timed_mutex> lock(running, std::defer_lock);
  for (;;) {
    {
      const nb::gil_scoped_release released;
      if (lock.try_lock_for(kLook)) return lock;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

CommandCall::CommandCall(std::vector<std::string> arguments, nb::object line, nb::object progress, nb::object step,
                         bool gently)
    : arguments_(std::move(arguments)),
      line_(std::move(line)),
      progress_(std::move(progress)),
      step_(std::move(step)),
      gently_(gently) {}

core::Answer CommandCall::run() {
  const std::unique_lock<std::timed_mutex> lock = turn();
  runs_on = std::this_thread::get_id();
  std::thread worker([this] { work(); });
  wait_until_ended();
  {
    const nb::gil_scoped_release released;
    worker.join();
  }
  runs_on = std::thread::id();
  if (raised_ && !(interrupted_ && gently_ && !failure_)) std::rethrow_exception(raised_);
  if (failure_) std::rethrow_exception(failure_);
  return std::move(answer_);
}

void CommandCall::work() {
  core::Listener listener;
  listener.line = [this](std::string_view text) { take_line(text); };
  if (!progress_.is_none()) {
    listener.progress = [this](std::string_view what, double share) {
      const std::lock_guard lock(mutex_);
      newest_ = Progress{std::string(what), share};
    };
  }
  if (!step_.is_none()) listener.step = [this](std::string_view json) { return take_step(json); };
  core::Answer answer;
  std::exception_ptr failure;
  try {
    answer = core::run_command(arguments_, listener);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
  failure_ = failure;
  ended_ = true;
  told_.notify_all();
}

void CommandCall::take_line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(text);
}

// Returns when Python has seen the step.
bool CommandCall::take_step(std::string_view json) {
  std::unique_lock lock(mutex_);
  if (!goes_on_) return false;
  step_json_ = std::string(json);
  told_.notify_all();
  stepped_.wait(lock, [&] { return !step_json_; });
  return goes_on_;
}

void CommandCall::wait_until_ended() {
  for (bool ended = false; !ended;) {
    {
      const nb::gil_scoped_release released;
      std::unique_lock lock(mutex_);
      told_.wait_for(lock, kLook, [&] { return ended_ || step_json_; });
    }
    if (raised_) core::stop_command(gently_);  // again: the command may not have begun when it was asked first
    try {
      ended = deliver();
    } catch (const nb::python_error& error) {
      stop_for(std::current_exception(), error.matches(PyExc_KeyboardInterrupt));
    }
  }
}

// Calls the functions of Python for what was told since the last call. Returns true behind the last.
bool CommandCall::deliver() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  std::deque<std::string> lines;
  std::optional<Progress> newest;
  std::optional<std::string> step;
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
    newest.swap(newest_);
    step = step_json_;
    ended = ended_;
  }
  const bool hears = !raised_;
  if (hears && !line_.is_none())
    for (const std::string& line : lines) line_(nb::bytes(line.data(), line.size()));
  if (hears && newest) progress_(nb::str(newest->what.data(), newest->what.size()), newest->share);
  if (step) {
    bool goes_on = hears;
    if (hears) {
      const nb::object told = step_(nb::bytes(step->data(), step->size()));
      goes_on = !told.is(nb::bool_(false));
    }
    const std::lock_guard lock(mutex_);
    goes_on_ = goes_on_ && goes_on;
    step_json_.reset();
    stepped_.notify_all();
  }
  return ended;
}

// Keeps the first error. The command is asked to end early.
void CommandCall::stop_for(std::exception_ptr error, bool interrupted) {
  const std::lock_guard lock(mutex_);
  if (!raised_) {
    raised_ = std::move(error);
    interrupted_ = interrupted;
  }
  goes_on_ = false;
  step_json_.reset();
  stepped_.notify_all();
}

}  // namespace heddle::python
