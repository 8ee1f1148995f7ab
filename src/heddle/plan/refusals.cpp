#include "heddle/plan/refusals.h"

#include "heddle/base/error.h"

namespace heddle::plan {

namespace {

struct Refusal {
  bool (*holds)(const Choices& choices);
  std::string (*why)(const Choices& choices);
};

bool muon(const Choices& c) { return c.update.rule == passes::OptimizerRule::muon; }
bool state_elsewhere(const Choices& c) { return c.memory.optimizer != StateHome::device; }
std::string home(const Choices& c) { return std::string(word_of(c.memory.optimizer)); }

const Refusal kRefusals[] = {
    {[](const Choices& c) { return c.parallel.ahead_of_norm && state_elsewhere(c); },
     [](const Choices& c) {
       return fmt::format("parallel.ahead_of_norm keeps the state on the device; memory.optimizer is \"{}\"",
                          home(c));
     }},
    {[](const Choices& c) { return muon(c) && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.optimizer \"muon\" waits for the norm of all gradients; parallel.ahead_of_norm does "
           "not go with it");
     }},
    {[](const Choices& c) { return c.update.skips_outliers() && c.parallel.ahead_of_norm; },
     [](const Choices&) {
       return std::string(
           "train.skip_norm_above and train.skip_loss_above wait for the norm of all gradients; "
           "parallel.ahead_of_norm does not go with them");
     }},
    {[](const Choices& c) { return c.update.skip_loss_above > 0 && c.exact_sums; },
     [](const Choices&) {
       return std::string(
           "train.skip_loss_above judges by a loss whose last bit each layout rounds its own way; "
           "train.exact_sums goes with train.skip_norm_above alone");
     }},
};

}  // namespace

void refuse_what_does_not_go_together(const Choices& choices) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.holds(choices)) config_error("{}", refusal.why(choices));
  }
}

}  // namespace heddle::plan
