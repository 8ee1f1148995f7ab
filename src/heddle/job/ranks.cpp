#include "heddle/job/ranks.h"

#include <cstdio>
#include <utility>

#include "heddle/base/say.h"

namespace heddle::job {

namespace {

constexpr size_t kMostSaid = 200;  // lines that are kept

Environment with_fence(Environment environment, const Fence& fence) {
  environment.emplace_back(kFenceVariable, text_of(fence));
  return environment;
}

}  // namespace

Ranks::Ranks(Fence fence, const std::vector<std::string>& words, Environment environment, bool prints,
             int end_signal)
    : fence_(std::move(fence)),
      prints_(prints),
      child_(
          words, with_fence(std::move(environment), fence_),
          [this](const std::string& line) {
            out_ += line + '\n';
            if (heard_ && prints_) say("{}\n", line);
          },
          [this](const std::string& line) {
            if (heard_) say(stderr, "{}\n", line);
            said_.push_back(line);
            if (said_.size() > kMostSaid) said_.pop_front();
          },
          end_signal) {}

void Ranks::be_heard() {
  heard_ = true;
  for (const std::string& line : said_) say(stderr, "{}\n", line);
  if (prints_ && !out_.empty()) say("{}", out_);
}

}  // namespace heddle::job
