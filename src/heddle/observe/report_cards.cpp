#include "heddle/observe/report_cards.h"

#include <fmt/format.h>

#include <cmath>

#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using Mood = VerdictCard::Mood;

void add_loss_card(const ReportData& data, std::vector<VerdictCard>& cards) {
  const RunFigures& f = data.figures;
  if (!f.loss) return;
  VerdictCard card{"Loss of the last step", loss_text(*f.loss), fmt::format("step {}", f.step)};
  if (!std::isfinite(*f.loss)) {
    card.note = fmt::format("diverged by step {}", f.step);
    card.mood = Mood::bad;
  } else {
    if (f.recent_steps > 1 && f.recent_loss)
      card.note += fmt::format("; mean of the last {}: {}", f.recent_steps, loss_text(*f.recent_loss));
    if (data.unigram_entropy && f.recent_loss) {
      const double below = *data.unigram_entropy - *f.recent_loss;
      card.note += fmt::format("; {:.2f} {} unigram entropy", std::abs(below), below >= 0 ? "below" : "above");
      card.mood = below > 0 ? Mood::good : Mood::neutral;
    }
  }
  cards.push_back(std::move(card));
}

void add_memory_card(const ReportData& data, std::vector<VerdictCard>& cards) {
  const std::optional<double>&measured = data.figures.reserved_bytes,
        &predicted = data.figures.predicted_reserved_bytes;
  VerdictCard card{"Peak memory", "", ""};
  if (measured && predicted) {
    const double off = *predicted > 0 ? (*measured - *predicted) / *predicted : 0;
    card.value = bytes_text(*measured);
    card.note = *measured == *predicted
                    ? "predicted to the byte"
                    : fmt::format("predicted {} ({:+.1f} %)", bytes_text(*predicted), 100 * off);
    card.mood = std::abs(off) <= 0.01 ? Mood::good : off > 0.1 ? Mood::bad : Mood::neutral;
  } else if (measured || predicted) {
    card.value = bytes_text(measured ? *measured : *predicted);
    card.note = measured ? "measured" : "predicted, not measured";
  } else {
    return;
  }
  if (!data.fullest.empty()) card.note = data.fullest + "; " + card.note;
  cards.push_back(std::move(card));
}

// What the held-out loss says: of next tokens it is a perplexity, of pairs of answers it stands beside how far and
// how often the preferred one is ahead.
std::string held_out_note(const ReportData& data) {
  const RunFigures& f = data.figures;
  for (auto step = data.steps.rbegin(); step != data.steps.rend(); ++step) {
    if (step->step != f.held_out_step) continue;
    const auto margin = step->extra.find("held_out_reward_margin"),
               accuracy = step->extra.find("held_out_reward_accuracy");
    if (margin == step->extra.end() || accuracy == step->extra.end()) break;
    return fmt::format("step {}; reward margin {:.3f}; accuracy {:.1f} %", f.held_out_step, margin->second,
                       100 * accuracy->second);
  }
  return fmt::format("step {}; perplexity {}", f.held_out_step, number_text(std::exp(*f.held_out_loss)));
}

}  // namespace

std::string cards_html(const ReportData& data) {
  const RunFigures& f = data.figures;
  std::vector<VerdictCard> cards;
  add_loss_card(data, cards);
  if (f.held_out_loss) {
    cards.push_back({"Held-out loss", loss_text(*f.held_out_loss), held_out_note(data)});
  }
  if (f.tokens_per_s) {
    cards.push_back({"Tokens per second", tokens_rate_text(*f.tokens_per_s),
                     f.tokens ? fmt::format("median of the steps; {} tokens seen", count_text(*f.tokens))
                              : std::string("median of the steps")});
  }
  if (f.flops_per_s) {
    cards.push_back(
        {"Model FLOP/s", flops_rate_text(*f.flops_per_s), "median of the steps; recompute not counted"});
  }
  add_memory_card(data, cards);
  cards.insert(cards.end(), data.cards.begin(), data.cards.end());
  if (cards.empty()) return "";
  std::string text = "<div class=\"cards\">\n";
  for (const VerdictCard& card : cards) text += card_html(card);
  return text + "</div>\n";
}

}  // namespace heddle::observe
