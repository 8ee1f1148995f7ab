#include "heddle/session/notes/data_notes.h"

#include "heddle/observe/units.h"

namespace heddle::session {

namespace {

std::string readings(const config::RunConfig& config, const data::Dataset& dataset, double epochs,
                     std::string_view when) {
  return fmt::format(
      "the text has {} tokens to train on: {} {} is read {:.1f} times, and beyond {:.0f} a further time "
      "teaches little",
      observe::count_text(static_cast<double>(dataset.train_sequences()) *
                          static_cast<double>(config.train.sequence_length)),
      when, dataset.files().size() > 1 ? "the part of the blend that is read most" : "it", epochs, kUsefulEpochs);
}

}  // namespace

double epochs_of(const config::RunConfig& config, const data::Dataset& dataset, int64_t steps) {
  return dataset.most_epochs(static_cast<double>(config.data_after(steps).consumed));
}

std::vector<std::string> data_notes(const config::RunConfig& config, const data::Dataset& dataset) {
  std::vector<std::string> notes;
  if (dataset.heldout_sequences() == 0) {
    const std::string_view so = "no held-out loss will be measured";
    if (config.data.heldout_fraction == 0) {
      if (config.train.eval_every > 0) notes.push_back(fmt::format("data.heldout_fraction is 0: {}", so));
    } else {
      notes.push_back(
          fmt::format("none of the text's {} document{} that fills a sequence was held out (about {:.2g} % are, "
                      "data.heldout_fraction): {}",
                      observe::grouped_text(dataset.documents()), dataset.documents() == 1 ? "" : "s",
                      100 * config.data.heldout_fraction, so));
    }
  }
  if (!config.length().by_clock()) {
    const double epochs = epochs_of(config, dataset, config.train.steps);
    if (epochs > kUsefulEpochs)
      notes.push_back(
          readings(config, dataset, epochs, fmt::format("in {} steps", observe::grouped_text(config.train.steps))));
  }
  return notes;
}

std::optional<std::string> epoch_note(const config::RunConfig& config, const data::Dataset& dataset, int64_t step) {
  if (!config.length().by_clock()) return std::nullopt;
  const double epochs = epochs_of(config, dataset, step);
  if (epochs <= kUsefulEpochs || epochs_of(config, dataset, step - 1) > kUsefulEpochs) return std::nullopt;
  return readings(config, dataset, epochs, "now");
}

}  // namespace heddle::session
