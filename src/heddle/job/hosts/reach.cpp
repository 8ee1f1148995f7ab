#include "heddle/job/hosts/reach.h"

#include "heddle/base/clock.h"
#include "heddle/base/error.h"

namespace heddle::job {

Reach::Reach(const std::vector<Host>& hosts, const Launcher& launcher, const std::string& shell, double seconds)
    : until_s_(now_s() + seconds) {
  const auto nobody = [](const std::string&) {};
  for (const Host& host : hosts) {
    Asked one{host.name, nullptr, std::nullopt};
    try {
      one.child = std::make_unique<Child>(launcher.on_host(host.name, shell, {"true"}), Environment{}, nobody,
                                          nobody, launcher.end_signal);
    } catch (const SystemError&) {
      one.status = 127;
    }
    asked_.push_back(std::move(one));
  }
}

bool Reach::poll() {
  bool all = true;
  for (Asked& one : asked_) {
    if (!one.status) one.status = one.child->poll(0);
    all &= one.status.has_value();
  }
  return all || now_s() > until_s_;
}

std::vector<std::string> Reach::answered() const {
  std::vector<std::string> names;
  for (const Asked& one : asked_) {
    if (one.status == 0) names.push_back(one.host);
  }
  return names;
}

std::vector<std::string> Reach::silent() const {
  std::vector<std::string> names;
  for (const Asked& one : asked_) {
    if (one.status != 0) names.push_back(one.host);
  }
  return names;
}

}  // namespace heddle::job
