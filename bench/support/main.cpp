#include "bench/support/main.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <type_traits>

#include "bench/support/stops.h"
#include "heddle/base/real_text.h"
#include "heddle/comm/mpi_world.h"

namespace heddle::bench {

namespace {

template <class Number>
bool take_number(const std::string& value, Number& into, Number least) {
  Number number{};
  const char* const last = value.data() + value.size();
  std::from_chars_result read;
  if constexpr (std::is_floating_point_v<Number>) {
    read = read_real(value.data(), last, number);
  } else {
    read = std::from_chars(value.data(), last, number);
  }
  if (read.ec != std::errc() || read.ptr != last || !(number >= least)) return false;
  into = number;
  return true;
}

}  // namespace

Arguments::Arguments(int count, char** words)
    : program_(std::filesystem::path(words[0]).filename()), words_(words + 1, words + count) {}

void Arguments::flag(const char* name, bool& into) {
  rows_.push_back({name, "", [&into](const std::string&) { return into = true; }});
}
void Arguments::number(const char* name, int& into, int least) {
  rows_.push_back(
      {name, "N", [&into, least](const std::string& value) { return take_number(value, into, least); }});
}
void Arguments::number(const char* name, int64_t& into, int64_t least) {
  rows_.push_back(
      {name, "N", [&into, least](const std::string& value) { return take_number(value, into, least); }});
}
void Arguments::number(const char* name, double& into, double least) {
  rows_.push_back(
      {name, "X", [&into, least](const std::string& value) { return take_number(value, into, least); }});
}

void Arguments::word(const char* name, const char* what, std::string& into,
                     std::initializer_list<const char*> accepted) {
  const std::vector<std::string> words(accepted.begin(), accepted.end());
  rows_.push_back({name, what, [&into, words](const std::string& value) {
                     if (!words.empty() && std::find(words.begin(), words.end(), value) == words.end())
                       return false;
                     into = value;
                     return true;
                   }});
}

void Arguments::dtype(const char* name, Dtype& into) {
  rows_.push_back({name, "bf16|f32", [&into](const std::string& value) {
                     into = value == "bf16" ? Dtype::bf16 : Dtype::f32;
                     return value == "bf16" || value == "f32";
                   }});
}

void Arguments::place(const char* what, std::string& into) {
  rows_.push_back({"", what, [&into](const std::string& value) {
                     into = value;
                     return true;
                   }});
}

std::string Arguments::usage() const {
  std::string text = "usage: " + program_;
  for (const Row& row : rows_) {
    text += fmt::format(" [{}{}{}]", row.name, row.name.empty() || row.what.empty() ? "" : " ", row.what);
  }
  return text;
}

void Arguments::refuse(const std::string& word) const { config_error("'{}' is not taken; {}", word, usage()); }

void Arguments::read() {
  double limit_s = 0;
  number("--limit", limit_s);
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i];
    if (word == "--help") {
      fmt::print("{}\n", usage());
      throw Done();
    }
    const std::string name = word.starts_with("--") ? word : "";
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    if (row == rows_.end()) refuse(word);
    const bool follows = !name.empty() && !row->what.empty();
    if (follows && i + 1 == words_.size()) refuse(word);
    const std::string& value = follows ? words_[++i] : word;
    if (!row->take(value)) refuse(follows ? word + " " + value : word);
  }
  if (limit_s > 0) limit_to(limit_s);
}

void check_launched() {
  if (!comm::launched_by_mpi()) config_error("start it with tools/hosts or mpirun");
}

}  // namespace heddle::bench

int main(int count, char** words) {
  using heddle::bench::Arguments;
  try {
    Arguments arguments(count, words);
    heddle::bench::watch_for_stops(std::filesystem::path(words[0]).filename());
    prctl(PR_SET_TIMERSLACK, 1UL);  // ns, of all threads: a paced op is not to oversleep by 50 us
    return heddle::bench::run(arguments);
  } catch (const Arguments::Done&) {
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", std::filesystem::path(words[0]).filename().string(), error.what());
    return dynamic_cast<const heddle::ConfigError*>(&error) != nullptr ? 2 : 1;
  }
}
