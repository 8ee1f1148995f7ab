#include "heddle/session/first_state.h"

#include "heddle/train/adapters/start_adapters.h"
#include "heddle/train/start_weights.h"

namespace heddle::session {

std::vector<std::string> begin_from_first_state(const config::RunConfig& config, train::Trainer& trainer,
                                                const std::function<void()>& before_adapters) {
  trainer.initialise();
  const config::RunConfig::Train& train = config.train;
  std::vector<std::string> notes;
  if (!train.start.empty()) notes = train::start_from(train.start, train.start_moments, trainer);
  if (before_adapters) before_adapters();
  if (!train.start_adapter.empty()) train::start_adapters_from(train.start_adapter, trainer);
  return notes;
}

}  // namespace heddle::session
