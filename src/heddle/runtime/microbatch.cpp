#include "heddle/runtime/microbatch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/microbatch_inputs.h"
#include "heddle/model/ngrams.h"

namespace heddle::runtime {

namespace {

using ir::Input;

/// The rows of an input: row t of a rank of cp and tp is a position of a sequence of the microbatch.
class Rows {
 public:
  Rows(const Input& input, const Microbatch& microbatch, const ir::Coordinates& place)
      : S_(input.attributes.integer("sequence")),
        cp_(static_cast<int>(input.attributes.integer_or("cp", 1))),
        tp_(static_cast<int>(input.attributes.integer_or("tp", 1))),
        of_cp_(place.at(ir::Axis::cp) * cp_ / place.of(ir::Axis::cp)),  // neighbours may share rows
        of_tp_(tp_ > 1 ? place.at(ir::Axis::tp) : 0),
        local_(S_ / (int64_t{cp_} * tp_)),
        count_(input.elements() / input.attributes.integer_or("each", 1)) {
    const int64_t parts = int64_t{cp_} * tp_;
    HEDDLE_CHECK(local_ > 0 && S_ % parts == 0 && count_ % local_ == 0, "input '{}': {} are not whole sequences",
                 input.name, text_of(input));
    sequences_ = count_ / local_;
    ids_ = std::ssize(microbatch.tokens);
  }
  int64_t count() const { return count_; }
  int64_t S() const { return S_; }
  int64_t sequences() const { return sequences_; }
  int64_t sequence(int64_t t) const { return t / local_; }
  int64_t position(int64_t t) const { return ir::position(of_tp_ * local_ + t % local_, S_, of_cp_, cp_); }
  /// Ids of each sequence of the microbatch.
  int64_t width() const {
    const int64_t width = sequences_ == 0 ? 0 : ids_ / sequences_;
    HEDDLE_CHECK(sequences_ == 0 || (width >= S_ && ids_ == sequences_ * width),
                 "a microbatch has {} ids, {} times {} are expected", ids_, sequences_, width);
    return width;
  }

 private:
  int64_t S_;
  int cp_, tp_, of_cp_, of_tp_;
  int64_t local_, count_, sequences_ = 0, ids_ = 0;
};

/// A number for each row, made from its id's place in the microbatch, which must have `width` ids a sequence.
template <class Number, class Make>
std::vector<Number> by_id(const Input& input, const Microbatch& micro, const Rows& rows, Make make) {
  const int64_t width = input.attributes.integer("width"), ids = std::ssize(micro.tokens);
  HEDDLE_CHECK(ids == rows.sequences() * width, "a microbatch has {} ids, {}×{} are expected", ids,
               rows.sequences(), width);
  const auto fits = [&](size_t size) { return size == 0 || std::cmp_equal(size, ids); };
  HEDDLE_CHECK(fits(micro.masked.size()), "{} mask entries for {} ids", micro.masked.size(), ids);
  HEDDLE_CHECK(fits(micro.weights.size()) && fits(micro.begins.size()), "{} weights and {} marks for {} ids",
               micro.weights.size(), micro.begins.size(), ids);
  const auto distance = static_cast<size_t>(input.attributes.integer("distance"));
  std::vector<Number> numbers;
  for (int64_t t = 0; t < rows.count(); ++t)
    numbers.push_back(make(static_cast<size_t>(rows.sequence(t) * width + rows.position(t)), distance));
  return numbers;
}

std::vector<int32_t> ids(const Input& input, const Microbatch& micro, const Rows& rows) {
  return by_id<int32_t>(input, micro, rows,
                        [&](size_t at, size_t distance) { return std::max(micro.tokens[at + distance], -1); });
}

std::vector<int32_t> labels(const Input& input, const Microbatch& micro, const Rows& rows) {
  return by_id<int32_t>(input, micro, rows, [&](size_t at, size_t distance) {
    return micro.is_label(at, distance) ? micro.tokens[at + distance] : -1;
  });
}

std::vector<double> weights(const Input& input, const Microbatch& micro, const Rows& rows) {
  return by_id<double>(input, micro, rows, [&](size_t at, size_t distance) {
    return micro.weights.empty() ? 1 : static_cast<double>(micro.weights[at + distance]);
  });
}

/// The begin of the document at each position of each sequence: the last one up to it. A document begins behind an
/// id `document_end`, or, without one, where the microbatch marks it; 0 where there is none.
std::vector<int32_t> all_starts(const Input& input, const Microbatch& micro, const Rows& rows) {
  const int64_t end = input.attributes.integer_or("document_end", -1), width = rows.width();
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < rows.sequences(); ++b) {
    int32_t start = 0;
    for (int64_t s = 0; s < rows.S(); ++s) {
      const auto at = static_cast<size_t>(b * width + s);
      const bool begins = end >= 0 ? s > 0 && micro.tokens[at - 1] == end
                                   : !micro.begins.empty() && micro.begins[at] != Begins::nothing;
      if (begins) start = static_cast<int32_t>(s);
      starts.push_back(start);
    }
  }
  return starts;
}

/// Starts of the rows that a rank of cp has, counted from the first of their piece.
std::vector<int32_t> piece_starts(const Input& input, const Microbatch& micro, const Rows& rows) {
  const std::vector<int32_t> all = all_starts(input, micro, rows);
  const int64_t length = rows.S() / (2 * input.attributes.integer("cp"));
  std::vector<int32_t> starts;
  for (int64_t t = 0; t < rows.count(); ++t) {
    const int64_t s = rows.position(t);
    starts.push_back(all[static_cast<size_t>(rows.sequence(t) * rows.S() + s)] -
                     static_cast<int32_t>(s - s % length));
  }
  return starts;
}

/// The first position of each position's chunk of its document, or of its sequence where these are not apart.
std::vector<int32_t> chunk_starts(const Input& input, const Microbatch& micro, const Rows& rows) {
  const auto chunk = static_cast<int32_t>(input.attributes.integer("chunk"));
  std::vector<int32_t> starts = input.attributes.integer_or("apart", 0) != 0
                                    ? all_starts(input, micro, rows)
                                    : std::vector<int32_t>(static_cast<size_t>(rows.count()), 0);
  for (size_t t = 0; t < starts.size(); ++t) {
    const auto s = static_cast<int32_t>(t % static_cast<size_t>(rows.S()));
    starts[t] = s - (s - starts[t]) % chunk;
  }
  return starts;
}

std::vector<int32_t> starts(const Input& input, const Microbatch& micro, const Rows& rows) {
  if (input.attributes.has("chunk")) return chunk_starts(input, micro, rows);
  return input.attributes.integer_or("cp", 1) > 1 ? piece_starts(input, micro, rows)
                                                  : all_starts(input, micro, rows);
}

std::vector<int32_t> cached_positions(const Input& input, const Microbatch& micro) {
  const auto S = static_cast<int32_t>(input.attributes.integer("sequence"));
  std::vector<int32_t> positions;
  for (const int32_t place : micro.places) positions.push_back(place < 0 ? -1 : place % S);
  return positions;
}

std::vector<int32_t> positions(const Input& input, const Microbatch& micro, const Rows& rows) {
  const bool apart = input.attributes.integer_or("apart", 0) != 0;
  const std::vector<int32_t> starts = apart ? all_starts(input, micro, rows) : std::vector<int32_t>();
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < rows.count(); ++t) {
    const int64_t s = rows.position(t);
    const int32_t start = apart ? starts[static_cast<size_t>(rows.sequence(t) * rows.S() + s)] : 0;
    positions.push_back(static_cast<int32_t>(s) - start);
  }
  return positions;
}

/// Factors on queries. Rows at no place of a cache have any.
template <class Number>
std::vector<Number> query_scales(const Input& input, const std::vector<int32_t>& positions) {
  const double beta = input.attributes.number("beta");
  const int64_t length = input.attributes.integer("length"), first = input.attributes.integer("first");
  std::vector<Number> scales;
  for (const int32_t position : positions) {
    const auto times = static_cast<double>((std::max(position, 0) + first) / length);
    scales.push_back(static_cast<Number>(1 + beta * std::log1p(times)));
  }
  return scales;
}

std::vector<int32_t> tokens(const Input&, const Microbatch& micro, const Rows& rows) {
  HEDDLE_CHECK((micro.first_sequence + rows.sequences()) * rows.S() <= std::numeric_limits<int32_t>::max(),
               "dropout counts tokens of a step up to 2^31, not those of sequence {}", micro.first_sequence);
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < rows.count(); ++t)
    tokens.push_back(static_cast<int32_t>((micro.first_sequence + rows.sequence(t)) * rows.S() + rows.position(t)));
  return tokens;
}

/// The tokens of a row's n-grams, the row's own first. The end token stands for those beyond an end token, the
/// begin of the document, or all that is known.
class NgramTokens {
 public:
  NgramTokens(const Input& input, const Microbatch& micro, const Rows& rows)
      : micro_(micro),
        rows_(rows),
        width_(rows.width()),
        end_(static_cast<int32_t>(input.attributes.integer("end"))),
        starts_(input.attributes.integer_or("apart", 0) != 0 ? all_starts(input, micro, rows)
                                                             : std::vector<int32_t>()),
        before_(static_cast<size_t>(input.attributes.integer_or("before", 0))) {
    HEDDLE_CHECK(before_ == 0 || micro.before.size() == before_ * static_cast<size_t>(rows.count()),
                 "{} ids before {} rows, {} a row are expected", micro.before.size(), rows.count(), before_);
  }
  void of(int64_t t, std::vector<int64_t>& tokens) const {
    const int64_t b = rows_.sequence(t), s = rows_.position(t);
    const int64_t start = starts_.empty() ? 0 : starts_[static_cast<size_t>(b * rows_.S() + s)];
    bool ended = false;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t from = s - static_cast<int64_t>(i);
      int32_t id = end_;
      if (!ended && from >= start) {
        id = micro_.tokens[static_cast<size_t>(b * width_ + from)];
      } else if (!ended && from < 0 && before_ >= i) {  // a row of a cache is a sequence of one position
        id = micro_.before[static_cast<size_t>(t) * before_ + i - 1];
      }
      if (i > 0 && (id < 0 || id == end_)) ended = true;
      tokens[i] = ended ? end_ : id;
    }
  }

 private:
  const Microbatch& micro_;
  const Rows& rows_;
  int64_t width_;
  int32_t end_;
  std::vector<int32_t> starts_;
  size_t before_;
};

std::vector<int32_t> ngrams(const Input& input, const Microbatch& micro, const Rows& rows) {
  const ir::Attributes& a = input.attributes;
  const model::NgramSizes sizes{.vocabulary = a.integer("vocabulary"),
                                .size = a.integer("size"),
                                .heads = a.integer("heads"),
                                .base = a.integer("base"),
                                .seed = a.integer("seed"),
                                .index = a.integer("index")};
  const model::NgramHashes hashes = model::ngram_hashes(sizes);
  const NgramTokens tokens_of(input, micro, rows);
  std::vector<int32_t> made;
  made.reserve(static_cast<size_t>(rows.count() * sizes.each()));
  std::vector<int64_t> tokens(static_cast<size_t>(sizes.size));
  for (int64_t t = 0; t < rows.count(); ++t) {
    tokens_of.of(t, tokens);
    if (tokens[0] < 0) {
      made.insert(made.end(), static_cast<size_t>(sizes.each()), -1);
      continue;
    }
    int64_t mixed = tokens[0] * hashes.multipliers[0];
    for (size_t n = 1; n < tokens.size(); ++n) {
      mixed ^= tokens[n] * hashes.multipliers[n];
      for (size_t h = (n - 1) * static_cast<size_t>(sizes.heads); h < n * static_cast<size_t>(sizes.heads); ++h)
        made.push_back(static_cast<int32_t>(hashes.first[h] + mixed % hashes.rows[h]));
    }
  }
  return made;
}

using Give = void (*)(device::Inputs& to, int m, const Input&, const Microbatch&, const ir::Coordinates& place);

template <auto make>
void give_rows(device::Inputs& to, int m, const Input& input, const Microbatch& micro,
               const ir::Coordinates& place) {
  to.set(input.name, m, make(input, micro, Rows(input, micro, place)));
}

template <auto member>
void give_all(device::Inputs& to, int m, const Input& input, const Microbatch& micro, const ir::Coordinates&) {
  to.set(input.name, m, micro.*member);
}

// Rows of a cache stand anywhere in it: they are no whole sequences.
void give_positions(device::Inputs& to, int m, const Input& input, const Microbatch& micro,
                    const ir::Coordinates& place) {
  if (input.attributes.integer_or("cached", 0) == 0) return give_rows<positions>(to, m, input, micro, place);
  to.set(input.name, m, cached_positions(input, micro));
}

void give_query_scales(device::Inputs& to, int m, const Input& input, const Microbatch& micro,
                       const ir::Coordinates& place) {
  const bool cached = input.attributes.integer_or("cached", 0) != 0;
  const std::vector<int32_t> rows =
      cached ? cached_positions(input, micro) : positions(input, micro, Rows(input, micro, place));
  if (input.dtype == Dtype::f64) return to.set(input.name, m, query_scales<double>(input, rows));
  to.set(input.name, m, query_scales<float>(input, rows));
}

/// A row for each word of the attribute `what` (model/microbatch_inputs.h).
constexpr std::pair<std::string_view, Give> kGives[] = {{"ids", give_rows<ids>},
                                                        {"labels", give_rows<labels>},
                                                        {"weights", give_rows<weights>},
                                                        {"starts", give_rows<starts>},
                                                        {"positions", give_positions},
                                                        {"query_scales", give_query_scales},
                                                        {"tokens", give_rows<tokens>},
                                                        {"places", give_all<&Microbatch::places>},
                                                        {"references", give_all<&Microbatch::references>},
                                                        {"ngrams", give_rows<ngrams>}};

}  // namespace

void set_microbatch(device::Inputs& inputs, int m, const Microbatch& micro, const ir::Listing& listing,
                    const ir::Coordinates& place) {
  for (const Input& input : listing.inputs) {
    if (input.owner != model::kMicrobatchOwner) continue;
    const std::string& what = input.attributes.word("what");
    const auto row = std::ranges::find(kGives, what, &std::pair<std::string_view, Give>::first);
    HEDDLE_CHECK(row != std::end(kGives), "input '{}': a microbatch has no input '{}'", input.name, what);
    row->second(inputs, m, input, micro, place);
  }
}

std::array<int32_t, 3> drawn_key(uint64_t seed, int64_t step) {
  return {static_cast<int32_t>(seed), static_cast<int32_t>(seed >> 32), static_cast<int32_t>(step)};
}

device::Inputs inputs_of(const Microbatch& microbatch, const ir::Listing& listing, const ir::Coordinates& place) {
  device::Inputs inputs(1);
  set_microbatch(inputs, 0, microbatch, listing, place);
  return inputs;
}

void set_scales(device::Inputs& inputs, std::span<const double> scales, const ir::Listing& listing) {
  const Input* input = listing.find_input("scales");
  if (input == nullptr) return;
  if (input->dtype == Dtype::f64) return inputs.set(input->name, scales);
  inputs.set(input->name, std::vector<float>(scales.begin(), scales.end()));
}

}  // namespace heddle::runtime
