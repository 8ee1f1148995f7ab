#include "heddle/session/notes/resume_notes.h"

#include "heddle/base/error.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::session {

namespace {

std::string changed_settings(const config::RunConfig& was, const config::RunConfig& now) {
  std::vector<std::string> changed;
  for (const config::Setting& s : config::settings()) {
    const auto text = [&](const config::RunConfig& c) {
      return s.present && !s.present(c) ? std::string("unset") : s.text_of(s.get(c));
    };
    if (text(was) != text(now)) changed.push_back(fmt::format("{} {} (was {})", s.key, text(now), text(was)));
  }
  return changed.empty() ? "" : fmt::format("other settings than before: {}", fmt::join(changed, ", "));
}

// A run that is made longer after its learning rate has begun to fall goes back up, which undoes the decay.
std::string behind_the_decay(const config::RunConfig& was, const config::RunConfig& now,
                             const train::CheckpointState& from) {
  const config::RunProgress done{from.step, from.trained_s};
  if (from.step == 0) return "";
  // The last step taken is the one that ended there.
  const double share = 1.0 - 1.0 / static_cast<double>(from.step);
  const config::RunProgress before{from.step - 1, from.trained_s * share};
  const config::LearningRate then = train::learning_rate_of(was), next = train::learning_rate_of(now);
  const double fell = then.left(was.length(), before), last = then.at(was.length(), before),
               first = next.at(now.length(), done);
  if (fell >= 1 || first <= last) return "";
  return fmt::format(
      "the checkpoint lies in the decay of the run as it was: the learning rate goes from {:.3g} back up to "
      "{:.3g}; an "
      "earlier checkpoint, from before the decay, would go on as if the run had been longer from the start",
      last, first);
}

}  // namespace

std::vector<std::string> resume_notes(const RunFolder& folder, const config::RunConfig& config,
                                      const train::CheckpointState* from, Dtype dtype) {
  std::vector<std::string> notes;
  try {
    const config::RunConfig was = config::read_run_config(folder.config());
    if (const std::string changed = changed_settings(was, config); !changed.empty()) notes.push_back(changed);
    if (from != nullptr) {
      if (const std::string jump = behind_the_decay(was, config, *from); !jump.empty()) notes.push_back(jump);
    }
  } catch (const Error& error) {
    notes.push_back(fmt::format("{}; it is written anew", error.what()));
  }
  if (from == nullptr) return notes;
  const auto had = from->layout.find("dtype");
  if (had != from->layout.end() && had->second != name_of(dtype))
    notes.push_back(
        fmt::format("weights and activations are {} from here on, {} before (device.dtype): no bit of the "
                    "next steps is the same",
                    name_of(dtype), had->second));
  return notes;
}

}  // namespace heddle::session
