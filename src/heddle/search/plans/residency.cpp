#include "heddle/search/plans/residency.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/words.h"

namespace heddle::search {

namespace {

constexpr const char* kDevice = "device";
constexpr const char* kHost = "host";

bool holds(const std::vector<std::string>& words, std::string_view word) {
  return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
}

bool usual(const Residency& r) { return r.on_device() && r.master == plan::MasterForm::full; }

}  // namespace

std::string text_of(const Residency& r) {
  std::vector<std::string> parts;
  if (r.optimizer != plan::StateHome::device) parts.emplace_back(word_of(r.optimizer));
  if (r.master == plan::MasterForm::split) parts.emplace_back("split masters");
  if (r.weights && r.gradients) {
    parts.emplace_back("weights and gradients on the host");
  } else if (r.crosses()) {
    parts.emplace_back(r.weights ? "weights on the host" : "gradients on the host");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool ResidencyWords::allow(const Residency& r) const {
  return holds(optimizer, word_of(r.optimizer)) && holds(master, word_of(r.master)) &&
         holds(weights, r.weights ? kHost : kDevice) && holds(gradients, r.gradients ? kHost : kDevice);
}

std::vector<Residency> worth_trying(const std::vector<Residency>& all, const ResidencyWords& words) {
  std::vector<Residency> worth;
  // Each sum crosses twice a microbatch and each weight twice, of half the bytes.
  for (const auto& [weights, gradients] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    std::vector<Residency> alike;
    for (const Residency& r : all) {
      if (r.weights == weights && r.gradients == gradients && words.allow(r)) alike.push_back(r);
    }
    std::stable_sort(alike.begin(), alike.end(), [](const Residency& a, const Residency& b) {
      return std::tuple(!usual(a), a.end_s) < std::tuple(!usual(b), b.end_s);
    });
    const size_t before = worth.size();
    for (const Residency& r : alike) {
      if (worth.size() == before || r.away_bytes > worth.back().away_bytes) worth.push_back(r);
    }
  }
  return worth;
}

}  // namespace heddle::search
