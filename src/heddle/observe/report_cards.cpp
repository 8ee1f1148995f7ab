#include "heddle/observe/report_cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using Mood = VerdictCard::Mood;

// The last step's loss, beside the mean of the last steps and what knowing only frequencies would reach.
void judge_loss(const ReportData& data, VerdictCard& card) {
  const RunFigures& f = data.figures;
  if (!std::isfinite(f.get(figures::kLoss, 0))) {
    card.note = fmt::format("diverged by step {}", f.step);
    card.mood = Mood::bad;
    return;
  }
  card.note = fmt::format("step {}", f.step);
  const auto recent = f.get(figures::kRecentLoss);
  if (!recent) return;
  if (const size_t steps = recent_steps(data.steps.size()); steps > 1)
    card.note += fmt::format("; mean of the last {}: {}", steps, text_of(figures::kRecentLoss, *recent));
  if (!data.unigram_entropy) return;
  const double below = *data.unigram_entropy - *recent;
  card.note += fmt::format("; {:.2f} {} unigram entropy", std::abs(below), below >= 0 ? "below" : "above");
  card.mood = below > 0 ? Mood::good : Mood::neutral;
}

// The held-out loss of next tokens is a perplexity; that of pairs of answers stands beside how far and how often
// the preferred one is ahead.
void judge_held_out(const ReportData& data, VerdictCard& card) {
  const RunFigures& f = data.figures;
  const auto at = static_cast<int64_t>(f.get(figures::kHeldOutStep, 0));
  for (auto step = data.steps.rbegin(); step != data.steps.rend(); ++step) {
    if (step->step != at) continue;
    const auto margin = step->get(figures::kHeldOutRewardMargin),
               accuracy = step->get(figures::kHeldOutRewardAccuracy);
    if (!margin || !accuracy) break;
    card.note = fmt::format("step {}; reward margin {:.3f}; accuracy {:.1f} %", at, *margin, 100 * *accuracy);
    return;
  }
  const double loss = f.get(figures::kHeldOutLoss, 0);
  card.note = fmt::format("step {}; perplexity {}", at, number_text(std::exp(loss)));
  constexpr double kTelling = 0.1;  // nats
  if (const double off = loss - f.get(figures::kRecentLoss, loss); std::abs(off) >= kTelling) {
    card.note += fmt::format(
        "; {:.2f} {} the last steps' loss: it is of other "
        "texts, so compare it with its own earlier values",
        std::abs(off), off > 0 ? "above" : "below");
  }
}

void judge_speed(const ReportData& data, VerdictCard& card) {
  if (const auto tokens = data.figures.get(figures::kTokens))
    card.note += fmt::format("; {} tokens seen", text_of(figures::kTokens, *tokens));
}

// Compares the arena's memory with the prediction; either may be unknown.
void judge_memory(const ReportData& data, VerdictCard& card) {
  const RunFigures& f = data.figures;
  const auto measured = f.get(figures::kArenaReservedPeak), predicted = f.get(figures::kPredictedReserved);
  if (measured && predicted) {
    const double off = *predicted > 0 ? (*measured - *predicted) / *predicted : 0;
    card.note = *measured == *predicted
                    ? "predicted to the byte"
                    : fmt::format("predicted {} ({:+.1f} %)", bytes_text(*predicted), 100 * off);
    card.mood = std::abs(off) <= 0.01 ? Mood::good : off > 0.1 ? Mood::bad : Mood::neutral;
  } else {
    card.note = measured ? "measured" : "predicted, not measured";
  }
  const double live_bytes = f.get(figures::kArenaLivePeak, 0);
  if (measured && live_bytes > 0)
    card.note =
        fmt::format("reserved by the arena, at most {} of it in use; {}", bytes_text(live_bytes), card.note);
  if (!data.fullest.empty()) card.note = data.fullest + "; " + card.note;
}

// Cards that say more than their row does. `instead` is shown where the row has no value.
struct Judgement {
  const Figure* row;
  void (*judge)(const ReportData&, VerdictCard&);
  const Figure* instead = nullptr;
};
constexpr Judgement kJudgements[] = {{&figures::kLoss, judge_loss},
                                     {&figures::kHeldOutLoss, judge_held_out},
                                     {&figures::kTokensPerSecond, judge_speed},
                                     {&figures::kArenaReservedPeak, judge_memory, &figures::kPredictedReserved}};

std::optional<VerdictCard> card_of(const Figure& row, const ReportData& data) {
  const auto* judged = std::find_if(std::begin(kJudgements), std::end(kJudgements),
                                    [&](const Judgement& each) { return each.row == &row; });
  const bool judges = judged != std::end(kJudgements);
  std::optional<double> value = data.figures.get(row);
  if (!value && judges && judged->instead != nullptr) value = data.figures.get(*judged->instead);
  if (!value) return std::nullopt;
  VerdictCard card{std::string(row.card.title), text_of(row, *value), std::string(row.card.note)};
  if (judges) judged->judge(data, card);
  return card;
}

}  // namespace

std::string cards_html(const ReportData& data) {
  std::vector<VerdictCard> cards;
  for (const Figure* row : figures::kRows) {
    if (row->card.title.empty()) continue;
    if (auto card = card_of(*row, data)) cards.push_back(std::move(*card));
  }
  cards.insert(cards.end(), data.cards.begin(), data.cards.end());
  if (cards.empty()) return "";
  std::string text = "<div class=\"cards\">\n";
  for (const VerdictCard& card : cards) text += card_html(card);
  return text + "</div>\n";
}

}  // namespace heddle::observe
