#include "heddle/session/agent/orders.h"

#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::session {

std::string AgentOrders::take(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string word = line.substr(0, space), rest = space == line.npos ? "" : line.substr(space + 1);
  const std::lock_guard lock(mutex_);
  if (word == "token" && !rest.empty()) {
    token_ = rest;
  } else if (word == "partner") {
    partner_ = rest;
  } else if (word == "forget" && rest.empty()) {
    forgets_ = true;
  } else if (word == "replaces" && !rest.empty() && token_.empty()) {
    replaced_.push_back(rest);
  } else if (word == "answer" && !rest.empty()) {
    return "answers " + rest;
  } else {
    config_error(
        "standard input: '{}', accepted: token WORD, partner HOST:PORT, forget, answer WORD, and before the token "
        "replaces ID",
        escaped(line, 100));
  }
  return "";
}

std::optional<std::string> AgentOrders::new_partner() {
  const std::lock_guard lock(mutex_);
  return std::exchange(partner_, std::nullopt);
}

std::string AgentOrders::token() const {
  const std::lock_guard lock(mutex_);
  return token_;
}

std::vector<std::string> AgentOrders::replaced() const {
  const std::lock_guard lock(mutex_);
  return replaced_;
}

bool AgentOrders::forgets() const {
  const std::lock_guard lock(mutex_);
  return forgets_;
}

}  // namespace heddle::session
