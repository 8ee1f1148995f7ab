#include "advisor/advice/targets.h"
#include "advisor/commands/search_options.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/observe/plans/plan_page.h"

namespace heddle::cli {

void check_plan_files(const SearchOptions& o) {
  if (!o.out.empty() && o.emit.empty()) config_error("search: --out without --emit");
}

std::string write_plan_files(const SearchOptions& o, const std::vector<search::Explanation>& plans,
                             const std::function<std::string(const search::Launch&)>& own) {
  std::string emitted;
  if (!o.emit.empty()) {
    const search::Explanation* sayable = nullptr;
    for (auto it = plans.rbegin(); it != plans.rend(); ++it)
      if (advisor::refusals_of(it->launch, o.emit).empty()) sayable = &*it;
    if (sayable == nullptr)
      config_error("{} can run none of these plans, the first for this: {}; narrow the search with --restrict",
                   o.emit, advisor::refusals_of(plans.front().launch, o.emit).front());
    emitted = own ? own(sayable->launch) : advisor::launch_text(sayable->launch, o.emit);
  }
  if (!o.explain.empty()) write_file(o.explain, observe::plan_page(plans, advisor::said_to_all));
  if (!o.out.empty()) write_file(o.out, emitted);
  return emitted;
}

}  // namespace heddle::cli
