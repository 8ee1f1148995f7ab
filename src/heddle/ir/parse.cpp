#include "heddle/ir/parse.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "heddle/base/real_text.h"
#include "heddle/ir/print.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr int kMostChunks = 4096;
constexpr std::string_view kMarks = ",{}()";

template <class Enum>
std::optional<Enum> named(std::string_view name, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// The unread rest of a line, word by word. Each of the marks is a word of its own, and so is what quotes hold.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view peek() const { return Words(*this).next(); }
  /// "" at the end.
  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    if (rest_.empty()) return rest_;
    size_t length = 0;
    if (rest_[0] == '"') {
      const size_t end = rest_.find('"', 1);
      length = end == std::string_view::npos ? rest_.size() : end + 1;
    } else {
      length = std::min(rest_.find_first_of(" ,{}()"), rest_.size());
    }
    const std::string_view word = rest_.substr(0, std::max(length, size_t{1}));
    rest_.remove_prefix(word.size());
    return word;
  }
  bool take(std::string_view word) {
    if (peek() != word) return false;
    next();
    return true;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

bool is_flag(std::string_view word) {
  return word == "fresh" || word == "beside" || word == "ahead" || word == "again" || word == "later" ||
         word == "trails" || word == "if";
}
bool is_name(std::string_view word) {
  return !word.empty() && word != "=" && word != "->" && word[0] != '"' && !is_flag(word) &&
         kMarks.find(word[0]) == std::string_view::npos;
}
bool ends_listings(std::string_view line) { return line.find(", ranks of class ") != std::string_view::npos; }

class Parser {
 public:
  Parser(std::string_view text, const FindOp& find_op) : text_(text), find_op_(find_op) {
    if (text.size() > kMostBytes) config_error("a program's text of {} bytes, at most {}", text.size(), kMostBytes);
    advance();
  }

  std::vector<Listing> listings() {
    std::vector<Listing> listings;
    while (!at_end_) {
      if (is_blank() || ends_listings(line_)) {
        advance();
      } else {
        listings.push_back(listing());
      }
    }
    return listings;
  }

 private:
  bool is_blank() const { return line_.find_first_not_of(' ') == std::string_view::npos; }

  void advance() {
    at_end_ = text_.empty();
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
  }

  [[noreturn]] void refuse(std::string_view found, std::string_view expected) const {
    config_error("program text, line {}: '{}', expected {}", number_, found.substr(0, 60), expected);
  }

  // A mistake that a listing finds is reported with its line of the text.
  template <class Work>
  auto checked(const Work& work) const {
    try {
      return work();
    } catch (const InternalError& error) {
      config_error("program text, line {}: {}", number_, error.what());
    }
  }

  int64_t integer(std::string_view word, int64_t least, int64_t most, std::string_view what) const {
    int64_t value = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || read.ec != std::errc() || read.ptr != word.data() + word.size() || value < least ||
        value > most) {
      refuse(word, fmt::format("{} from {} to {}", what, least, most));
    }
    return value;
  }

  // Up to a blank line or the end.
  Listing listing() {
    listing_ = Listing();
    listing_.name = std::string(line_);
    phase_.reset();
    if (line_.starts_with(' ')) refuse(line_, "the name of a listing");
    for (advance(); !at_end_ && !is_blank(); advance()) {
      const size_t indent = line_.find_first_not_of(' ');
      if (indent == 0) {
        section();
      } else if (indent == 2 && !phase_) {
        table_row();
      } else if (indent == 2) {
        layer_row();
      } else if (indent == 4 && phase_) {
        op_row();
      } else {
        refuse(line_, phase_ ? "'  layer', '  no layer' or an op after four blanks" : "a value after two blanks");
      }
    }
    find_accumulators();
    return std::move(listing_);
  }

  void section() {
    const std::string begin = listing_.name + ", ";
    phase_ = line_.starts_with(begin) ? named(line_.substr(begin.size()), Phase::end) : std::nullopt;
    if (!phase_) refuse(line_, fmt::format("'{}' and one of begin, F, I, W, end", begin));
    layer_ = -1;
  }

  void layer_row() {
    Words words(line_);
    const std::string_view word = words.next();
    if (word == "layer") {
      layer_ = static_cast<int>(integer(words.next(), 0, 1 << 30, "a layer"));
    } else if (word == "no" && words.take("layer")) {
      layer_ = -1;
    } else {
      refuse(line_, "'layer' and its number, or 'no layer'");
    }
    expect_end(words);
  }

  void table_row() {
    Words words(line_);
    const std::string_view first = words.next();
    if (first == "chunks") return chunks(words);
    if (first == kTakes) return input(words);
    Value value;
    const std::optional<Role> role = named(first, Role::cache);
    if (!role)
      refuse(first,
             "'chunks', 'takes' or a role such as weight, accumulator, optimizer, statistic, cache or activation");
    value.role = *role;
    value.name = new_name(words.next());
    value.shape = shape_after(words, value.dtype);
    if (words.take("packed")) value.layout = Layout::packed;
    if (words.take("in")) {
      value.packed_bytes = integer(words.next(), 1, int64_t{1} << 60, "a number of bytes");
      if (!words.take("bytes")) refuse(words.peek(), "'bytes'");
    }
    if (words.take("frozen")) value.frozen = true;
    for (const Space space : {Space::host, Space::shared, Space::nowhere}) {
      if (words.take(name_of(space))) value.space = space;
    }
    if (words.take("of")) {
      if (!words.take("listing")) refuse(words.peek(), "'listing'");
      value.shared_with = static_cast<int>(integer(words.next(), 0, 1 << 30, "a listing's number"));
    }
    expect_end(words);
    listing_.add_value(std::move(value));
  }

  // "takes homes.3 i32[8] standing of migration else in_order {experts 8}"
  void input(Words words) {
    Input input;
    input.name = words.next();
    if (!is_name(input.name)) refuse(input.name, "the name of an input");
    for (const Dim& dim : shape_after(words, input.dtype)) {
      if (!dim.is_static()) refuse(line_, "sizes that are numbers");
      input.shape.push_back(dim.count);
    }
    const std::string_view given = words.next();
    const std::optional<Given> found = named(given, Given::standing);
    if (!found) refuse(given, "'microbatch', 'step' or 'standing'");
    input.given = *found;
    if (!words.take("of")) refuse(words.peek(), "'of' and who gives the input");
    input.owner = words.next();
    if (!is_name(input.owner)) refuse(input.owner, "who gives the input");
    if (words.take("else")) input.otherwise = otherwise(words.next());
    if (words.take("{")) attributes(words, input.attributes);
    expect_end(words);
    checked([&] { return listing_.add_input(input); });
  }

  Default otherwise(std::string_view word) const {
    if (word == "in_order") return Default::in_order();
    const Attributes::Item item = item_of(word);
    if (const auto* integer = std::get_if<int64_t>(&item)) return Default::of(static_cast<double>(*integer));
    if (const auto* number = std::get_if<double>(&item)) return Default::of(*number);
    refuse(word, "'in_order' or a number");
  }

  void chunks(Words words) {
    listing_.chunks.clear();
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
      const size_t bar = std::min(word.find('/'), word.size());
      Chunk chunk;
      chunk.route = static_cast<int>(integer(word.substr(0, bar), 0, kMostChunks, "a route"));
      chunk.routes = static_cast<int>(integer(word.substr(std::min(bar + 1, word.size())), chunk.route + 1,
                                              kMostChunks, "the number of routes"));
      listing_.chunks.push_back(chunk);
    }
    if (listing_.chunks.empty()) refuse(line_, "chunks such as 0/1");
    if (listing_.chunks.size() > kMostChunks) refuse(line_, "fewer chunks");
  }

  // "bf16[3·rows n, 4]"
  Shape shape_after(Words& words, Dtype& dtype) {
    std::string_view rest = words.rest();
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const size_t open = rest.find('['), close = rest.find(']');
    const std::optional<Dtype> found = named(rest.substr(0, std::min(open, rest.size())), Dtype::u8);
    if (!found || open == std::string_view::npos || close == std::string_view::npos) {
      refuse(rest, "a type and a shape, such as f32[16, 4]");
    }
    dtype = *found;
    Shape shape;
    int64_t elements = 1;
    Words dims(rest.substr(open + 1, close - open - 1));
    while (!dims.peek().empty()) {
      shape.push_back(dim(dims));
      if (shape.back().count > kMostElements / std::max(elements, int64_t{1})) refuse(rest, "fewer elements");
      elements *= shape.back().count;
      if (!dims.take(",")) break;
    }
    if (!dims.peek().empty()) refuse(rest, "dims with commas between them");
    words = Words(rest.substr(close + 1));
    return shape;
  }

  Dim dim(Words& words) {
    constexpr std::string_view times = "·";
    Dim dim;
    std::string_view word = words.next();
    if (const size_t at = word.find(times); at != std::string_view::npos) {
      dim.count = integer(word.substr(0, at), 0, kMostElements, "a number of rows");
      word = word.substr(at + times.size());
    }
    if (word == "rows") {
      dim.rows_of = known(words.next());
    } else {
      dim.count = integer(word, 0, kMostElements, "a dim");
    }
    return dim;
  }

  // "a, b = kind c, d -> e (f) {g 1} fresh", then, after two blanks, stream and tags.
  void op_row() {
    const std::string_view row = line_.substr(4);
    const size_t gap = std::min(row.find("  "), row.size());
    Words words(row.substr(0, gap));
    Op op;
    op.phase = *phase_;
    op.layer = layer_;
    std::vector<std::string> names;
    if (row.substr(0, gap).find(" = ") != std::string_view::npos) {
      do {
        names.emplace_back(words.next());
        op.out.push_back(written(names.back()));
      } while (words.take(","));
      if (!words.take("=")) refuse(words.peek(), "',' or '='");
    }
    op.def = checked([&] { return &find_op_(words.next()); });
    if (is_name(words.peek())) op.in = values(words, true);
    if (words.take("->")) op.updates = values(words, false);
    if (words.take("(")) {
      op.mentions = values(words, false);
      if (!words.take(")")) refuse(words.peek(), "')'");
    }
    if (words.take("{")) attributes(words, op.attributes);
    op.fresh = words.take("fresh");
    op.beside = words.take("beside");
    op.ahead = words.take("ahead");
    op.again = words.take("again");
    op.later = words.take("later");
    op.trails = words.take("trails");
    if (words.take("if")) condition(words, op);
    expect_end(words);
    for (size_t i = 0; i < op.out.size() && !op.condition; ++i) {
      if (op.out[i] != none && listing_.value(op.out[i]).part_of == none)
        refuse(names[i], "a name that no value above has, or a condition");
    }
    tail(Words(row.substr(gap)), op);
    append(std::move(op), names);
  }

  void attributes(Words& words, Attributes& attributes) const {
    do {
      const std::string_view name = words.next(), item = words.next();
      if (!is_name(name) || item.empty() || kMarks.find(item[0]) != std::string_view::npos) {
        refuse(name, "an attribute and what it is");
      }
      attributes.set(std::string(name), item_of(item));
    } while (words.take(","));
    if (!words.take("}")) refuse(words.peek(), "',' or '}'");
  }

  // "n > 4096", "n <= 4096"
  void condition(Words& words, Op& op) {
    op.condition.rows_of = known(words.next());
    const std::string_view relation = words.next();
    if (relation != ">" && relation != "<=") refuse(relation, "'>' or '<='");
    op.condition.more = relation == ">";
    op.condition.limit = integer(words.next(), 0, kMostElements, "a number of rows");
  }

  void tail(Words words, Op& op) const {
    if (words.take("on")) {
      op.stream = words.next();
      if (!is_name(op.stream)) refuse(op.stream, "the name of a stream");
      over(words, op);
    } else if (is_name(words.peek()) && words.peek()[0] != '@' && words.peek()[0] != '#') {
      const std::string stream(words.next());
      op.group = group_of_stream(stream);
      over(words, op);
      if (usual_stream(op) != stream)
        refuse(stream, fmt::format("the stream of '{}', such as '{}'", op.kind(), usual_stream(op)));
    }
    if (communicates(*op.def) && op.group.empty())
      refuse(words.peek(), fmt::format("two blanks and the stream of '{}', which communicates", op.kind()));
    if (words.take("stall") && !op.def->host_stall) refuse("stall", fmt::format("no stall of '{}'", op.kind()));
    if (words.peek().starts_with('@')) op.part = words.next().substr(1);
    if (words.take("#all")) {
      op.chunk = kAllChunks;
    } else if (words.peek().starts_with('#')) {
      op.chunk = static_cast<int>(integer(words.next().substr(1), 0, std::ssize(listing_.chunks) - 1, "a chunk"));
    }
    expect_end(words);
  }

  void over(Words& words, Op& op) const {
    if (!words.take("over")) return;
    op.group = words.next();
    if (!is_name(op.group) || !communicates(*op.def))
      refuse(op.group, communicates(*op.def) ? "the name of a group" : "no group: the op doesn't communicate");
  }

  void append(Op op, const std::vector<std::string>& names) {
    // Differentiation calls what its ops make gradients; what a pass makes again, or brings back, stays what it is.
    const bool makes_gradients = op.phase == Phase::I && !op.again && !is_copy(op.def->moves);
    const std::vector<ValueId> before = op.out;
    const std::vector<ValueId> out = checked([&] { return listing_.append(std::move(op), names); });
    for (size_t i = 0; i < out.size(); ++i) {
      Value& value = listing_.value(out[i]);
      if (value.name != names[i]) refuse(names[i], "a name only once");
      const bool is_new = i >= before.size() || before[i] == none;
      if (is_new && makes_gradients && value.role == Role::activation) value.role = Role::gradient;
    }
  }

  std::vector<ValueId> values(Words& words, bool may_lack) {
    std::vector<ValueId> ids;
    do {
      const std::string_view name = words.next();
      ids.push_back(may_lack && name == "none" ? none : known(name));
    } while (words.take(","));
    return ids;
  }

  // "x", "x.rows[0:4]", "x.rows[0:4/16]", "x.elements[0:1024]", "x.matrices[0:8]"
  ValueId known(std::string_view name) {
    const ValueId id = listing_.find(name);
    if (id != none) return id;
    if (const ValueId part = part_named(name); part != none) return part;
    std::vector<std::string> names;
    for (const Value& value : listing_.values) names.push_back(value.name);
    refuse(name, "a value of the table, or one that an op above makes" + did_you_mean(name.substr(0, 60), names));
  }

  // A part comes into being where it is first named.
  ValueId part_named(std::string_view name) {
    const size_t open = name.rfind('['), dot = name.rfind('.', open),
                 colon = name.find(':', std::min(open, name.size()));
    if (open == std::string_view::npos || dot == std::string_view::npos || colon == std::string_view::npos ||
        !name.ends_with(']')) {
      return none;
    }
    const std::string_view what = name.substr(dot + 1, open - dot - 1);
    if (what != "rows" && what != "elements" && what != "matrices") return none;
    const ValueId base = known(name.substr(0, dot));
    const int64_t begin = integer(name.substr(open + 1, colon - open - 1), 0, kMostElements, "a part's beginning");
    std::string_view last = name.substr(colon + 1, name.size() - colon - 2);
    int64_t every = 0;
    if (const size_t slash = last.find('/'); what == "rows" && slash != std::string_view::npos) {
      every = integer(last.substr(slash + 1), 1, kMostElements, "the rows of a run");
      last = last.substr(0, slash);
    }
    const int64_t end = integer(last, 0, kMostElements, "a part's end");
    return checked([&] {
      if (every > 0) return listing_.rows(base, begin, end, every);
      if (what == "matrices") {
        HEDDLE_CHECK(begin == 0, "matrices of '{}' are taken from the first on", listing_.value(base).name);
        return listing_.matrices(base, end);
      }
      return what == "rows" ? listing_.rows(base, begin, end) : listing_.elements_of(base, begin, end);
    });
  }

  // The value that an op writes; none if it is new. A value written before may be written again, under conditions.
  ValueId written(std::string_view name) {
    if (const ValueId id = listing_.find(name); id != none && !is_persistent(listing_.value(id).role)) return id;
    if (const ValueId part = part_named(name); part != none) return part;
    new_name(name);
    return none;
  }

  std::string new_name(std::string_view name) const {
    if (!is_name(name) || name == "none") refuse(name, "the name of a value");
    if (listing_.find(name) != none) refuse(name, "a name that no value above has");
    return std::string(name);
  }

  void expect_end(Words words) const {
    if (!words.peek().empty()) refuse(words.peek(), "the end of the line");
  }

  void find_accumulators() {
    for (ValueId id = 0; id < std::ssize(listing_.values); ++id) {
      if (listing_.value(id).role != Role::weight) continue;
      for (int use = 1;; ++use) {
        const std::string name = "grad." + listing_.value(id).name + (use == 1 ? "" : fmt::format(".use{}", use));
        const ValueId exact = listing_.find("exact." + name);
        ValueId sum = exact != none ? exact : listing_.find(name);
        if (sum == none || listing_.value(sum).role != Role::accumulator) break;
        if (const ValueId run = listing_.find("sum." + listing_.value(sum).name); run != none) sum = run;
        listing_.accumulators[id].push_back(sum);
      }
    }
  }

  std::string_view text_, line_;
  int number_ = 0;  // of the line
  bool at_end_ = false;
  const FindOp& find_op_;
  Listing listing_;
  std::optional<Phase> phase_;
  int layer_ = -1;
};

}  // namespace

Attributes::Item item_of(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return std::string(text.substr(1, text.size() - 2));
  }
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto read = std::from_chars(text.data(), end, integer); read.ec == std::errc() && read.ptr == end) {
    return integer;
  }
  double number = 0;
  if (const auto read = read_real(text.data(), end, number); read.ec == std::errc() && read.ptr == end) {
    return number;
  }
  return std::string(text);
}

Listing parse_listing(std::string_view text, const FindOp& find_op) {
  std::vector<Listing> listings = parse_listings(text, find_op);
  if (listings.size() != 1) config_error("program text: {} listings, expected one", listings.size());
  return std::move(listings[0]);
}

std::vector<Listing> parse_listings(std::string_view text, const FindOp& find_op) {
  return Parser(text, find_op).listings();
}

}  // namespace heddle::ir
