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

bool usual(const plan::Residency& r) { return r.on_device() && r.master == plan::MasterForm::full; }

}  // namespace

std::vector<passes::OpGroup> on_host(bool all) {
  return all ? std::vector<passes::OpGroup>{{"all"}} : std::vector<passes::OpGroup>{};
}

std::string text_of(const plan::Residency& r) {
  std::vector<std::string> parts;
  if (r.optimizer != plan::StateResidency::device) parts.emplace_back(word_of(r.optimizer));
  if (r.master == plan::MasterForm::split) parts.emplace_back("split masters");
  if (!r.weights.empty() && !r.gradients.empty()) {
    parts.emplace_back("weights and gradients on the host");
  } else if (r.crosses()) {
    parts.emplace_back(!r.weights.empty() ? "weights on the host" : "gradients on the host");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool ResidencyWords::allow(const plan::Residency& r) const {
  return holds(optimizer, word_of(r.optimizer)) && holds(master, word_of(r.master)) &&
         holds(weights, r.weights.empty() ? kDevice : kHost) &&
         holds(gradients, r.gradients.empty() ? kDevice : kHost);
}

std::vector<PricedResidency> worth_trying(const std::vector<PricedResidency>& all, const ResidencyWords& words) {
  std::vector<PricedResidency> worth;
  // Each sum crosses twice a microbatch and each weight twice, of half the bytes.
  for (const auto& [weights, gradients] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    std::vector<PricedResidency> alike;
    for (const PricedResidency& r : all) {
      if (!r.weights.empty() == weights && !r.gradients.empty() == gradients && words.allow(r)) alike.push_back(r);
    }
    std::stable_sort(alike.begin(), alike.end(), [](const PricedResidency& a, const PricedResidency& b) {
      return std::tuple(!usual(a), a.end_s) < std::tuple(!usual(b), b.end_s);
    });
    const size_t before = worth.size();
    for (const PricedResidency& r : alike) {
      if (worth.size() == before || r.away_bytes > worth.back().away_bytes) worth.push_back(r);
    }
  }
  return worth;
}

}  // namespace heddle::search
