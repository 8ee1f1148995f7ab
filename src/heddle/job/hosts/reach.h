// Finds which of some hosts answer, asked all at once and without waiting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/job/child.h"
#include "heddle/job/launcher.h"

namespace heddle::job {

class Reach {
 public:
  Reach(const std::vector<Host>& hosts, const Launcher& launcher, const std::string& shell, double seconds);

  /// True if all have answered, or had the time to.
  bool poll();
  std::vector<std::string> answered() const;
  std::vector<std::string> silent() const;

 private:
  struct Asked {
    std::string host;
    std::unique_ptr<Child> child;  // null: it could not be asked
    std::optional<int> status;
  };
  std::vector<Asked> asked_;
  double until_s_;
};

}  // namespace heddle::job
