#include "heddle/session/run/context.h"

#include <utility>

#include "heddle/session/ranks/rank_watch.h"
#include "heddle/session/run_data.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/service.h"
#include "heddle/session/signals.h"
#include "heddle/session/slow/alarms.h"

namespace heddle::session {

RunContext::RunContext(config::RunConfig of_run, bool resume, Telling wanted, RankPlace at)
    : config(std::move(of_run)),
      resumes(resume),
      telling(std::move(wanted)),
      place(std::move(at)),
      patience([world = place.world](double limit_s) {
        if (world != nullptr) world->set_patience(limit_s);
      }),
      keeping{.every = config.train.checkpoint_every, .costs = SnapshotFrequency(config.train.mtbf_hours * 3600)} {}

RunContext::~RunContext() = default;

bool RunContext::leads() const { return place.world == nullptr || place.world->rank() == 0; }

bool RunContext::is_over() const { return config.length().reached(trainer->done()); }

int64_t RunContext::next_batch() const { return config.data_after(trainer->steps_done()).batch; }

void RunContext::look_at_folder() {
  folder_watch->look([this](const std::string& text) { warn(text); });
}

void RunContext::within(const std::function<void()>& limit, const std::function<void()>& body) {
  limit();
  body();
  trainer->ranks().any(false);
  patience.step(next_batch());
}

std::string RunContext::digest_now() const {
  return keeping.digest_step == trainer->steps_done() ? summary.weights_digest : "";
}

void RunContext::answer_signals(const std::string& doing) const {
  if (!leads()) {
    if (!place.threads) Signals::answer("", "");
    return;
  }
  const int64_t done = trainer->steps_done(), saved = keeping.saved_step;
  std::string lost = "no step was done, nothing is lost";
  if (saved == done) {
    lost = fmt::format("the checkpoint of step {} holds all that was done", done);
  } else if (saved >= 0) {
    lost = fmt::format("steps after the checkpoint of step {} are lost; --resume goes on from there", saved);
  } else if (done > 0) {
    lost = fmt::format("the state is not saved: no checkpoint was written yet, {} steps are lost", done);
  }
  Signals::answer(fmt::format("waiting for {}, then for a checkpoint; asked again it ends at once, and {}", doing,
                              saved == done ? "the current step is lost" : lost),
                  lost);
}

}  // namespace heddle::session
