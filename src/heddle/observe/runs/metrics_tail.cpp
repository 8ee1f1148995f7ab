#include "heddle/observe/runs/metrics_tail.h"

#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/observe/experts/load_frames.h"
#include "heddle/observe/metrics_log.h"

namespace heddle::observe {

bool MetricsTail::read() {
  std::error_code missing;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_, missing));
  if (missing || size == offset_) return false;
  if (size < offset_) {
    offset_ = 0;
    steps_.clear();
  }
  std::ifstream in(path_, std::ios::binary);
  in.seekg(offset_);
  std::string chunk(1 << 16, '\0'), line;
  bool any = false, too_long = false;
  int64_t until = offset_;  // end of what has been read
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0) {
    until += in.gcount();
    std::string_view rest(chunk.data(), static_cast<size_t>(in.gcount()));
    for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
      line += rest.substr(0, end);
      offset_ = until - static_cast<int64_t>(rest.size() - end - 1);
      try {
        if (!too_long) {
          StepMetrics step = step_of_line(line);
          while (!steps_.empty() && step.step <= steps_.back().step) steps_.pop_back();
          if (!steps_.empty()) drop_layers(steps_.back());
          steps_.push_back(std::move(step));
          any = true;
        }
      } catch (const ConfigError&) {  // not a step
      }
      line.clear();
      too_long = false;
    }
    if (line.size() + rest.size() > kLongestLineBytes) too_long = true, line.clear();
    if (!too_long) line += rest;
  }
  return any;
}

}  // namespace heddle::observe
