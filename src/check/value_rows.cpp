// Faults of which rows and columns a rank has, and in which order.
#include <algorithm>
#include <cmath>

#include "check/fault_rows.h"

namespace heddle::check {

using ir::Axis;

namespace {

std::string with_note(const std::string& line, const std::string& note) { return line + "  " + note; }

// The dims of a tensor, and which of them holds the outputs of its product: rows of a weight, columns of its
// output.
struct Outputs {
  int64_t before = 1, count = 1, behind = 1;
};
std::optional<Outputs> outputs_of(const Seen& seen) {
  const std::vector<int64_t>& dims = seen.record.slice.of;
  if (dims.empty()) return std::nullopt;
  const bool value = seen.all.stage == Stage::forward || seen.all.stage == Stage::backward;
  const size_t d = value ? dims.size() - 1 : 0;
  Outputs o;
  for (size_t i = 0; i < dims.size(); ++i) (i < d ? o.before : i == d ? o.count : o.behind) *= dims[i];
  return o;
}

// The whole tensor with output i taken from `from(i)`.
template <class From>
Numbers reordered(const Numbers& whole, const Outputs& o, const From& from) {
  Numbers turned(whole.size());
  for (int64_t b = 0; b < o.before; ++b) {
    for (int64_t i = 0; i < o.count; ++i) {
      const int64_t source = (b * o.count + from(i)) * o.behind, into = (b * o.count + i) * o.behind;
      std::copy_n(whole.begin() + source, o.behind, turned.begin() + into);
    }
  }
  return turned;
}

bool is_of(const std::string& name, std::initializer_list<const char*> modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const char* m) { return name.find(m) != std::string::npos; });
}

std::string with_module(std::string name, const std::string& from, const std::string& to) {
  const size_t at = name.find(from);
  return at == std::string::npos ? "" : name.replace(at, from.size(), to);
}

// The reference of the same tensor of another module, of the same stage and microbatch.
const Whole* other_module(const Seen& seen, const std::string& name) {
  Record other = seen.record;
  other.name = name;
  return seen.reference.find(seen.reference.key_of(other));
}

}  // namespace

void slice_faults(const Setting& s, std::vector<Fault>& all) {
  for (const auto& [axis, degree] : long_axes(s.layout)) {
    const std::string name(ir::name_of(axis));
    for (int shift = 1; shift < degree; ++shift) {
      all.push_back(
          {.name = fmt::format("slice_of.{}.{}", name, shift),
           .sentence = fmt::format("it holds the slice of the rank {} further along {}", shift, name),
           .change = [axis = axis, degree = degree, shift](const Numbers& whole,
                                                           const Seen& seen) -> std::optional<Numbers> {
             for (const Record* other : seen.all.records) {
               const ir::Coordinates& at = seen.reference.dump().ranks[static_cast<size_t>(other->rank)].at;
               if (at.at(axis) != (seen.here.at(axis) + shift) % degree || other->slice == seen.record.slice)
                 continue;
               if (other->slice.dims() == seen.record.slice.dims()) return taken(whole, other->slice);
             }
             return std::nullopt;
           },
           .text =
               [name, shift](const std::string& line) {
                 return with_note(line, fmt::format("of {} + {}", name, shift));
               }});
    }
  }
  const int cp = s.layout.mesh.cp;
  if (cp > 1) {
    all.push_back({.name = "positions_in_a_row",
                   .sentence = "cp ranks hold positions one behind the other, not two chunks from either end",
                   .change = [cp](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
                     if (seen.record.slice.of.size() != 3) return std::nullopt;
                     Slice slice = seen.record.slice;
                     const int64_t length = slice.of[1], local = length / cp,
                                   first = seen.here.at(Axis::cp) * local;
                     if (slice.dims()[1] != local) return std::nullopt;
                     slice.at[1] = {{first, first + local}};
                     return taken(whole, slice);
                   },
                   .text = [](const std::string& line) { return with_note(line, "{zigzag 0}"); }});
  }
  for (const auto& [what, step] : {std::pair{"microbatch", s.layout.mesh.dp}, {"dp rank", 1}}) {
    if ((std::string(what) == "microbatch" ? s.layout.microbatches : s.layout.mesh.dp) == 1) continue;
    for (const int sign : {-1, 1}) {
      all.push_back({.name = fmt::format("rows_of.{}.{}", what, sign),
                     .sentence = fmt::format("it is of the {} {} this one: stale, or read too early", what,
                                             sign < 0 ? "before" : "after"),
                     .change = [step = step, sign](const Numbers&, const Seen& seen) -> std::optional<Numbers> {
                       Key key = seen.reference.key_of(seen.record);
                       if (std::get<2>(key) < 0) return std::nullopt;
                       std::get<2>(key) += sign * step;
                       const Whole* other = seen.reference.find(key);
                       if (other == nullptr) return std::nullopt;
                       return taken(other->values, seen.record.slice);
                     },
                     .text = [what = std::string(what)](
                                 const std::string& line) { return with_note(line, "of another " + what); }});
    }
  }
}

void order_faults(const Setting& s, std::vector<Fault>& all) {
  const model::ModelConfig& m = s.reference.model();
  const auto swapped = [&](std::string name, std::string sentence, std::string a, std::string b) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [a = std::move(a), b = std::move(b)](const Numbers&,
                                                                  const Seen& seen) -> std::optional<Numbers> {
                     std::string other = with_module(seen.all.name, a, b);
                     if (other.empty()) other = with_module(seen.all.name, b, a);
                     const Whole* whole = other.empty() ? nullptr : other_module(seen, other);
                     if (whole == nullptr || whole->dims != seen.record.slice.of) return std::nullopt;
                     return taken(whole->values, seen.record.slice);
                   },
                   .text = [](const std::string& line) { return with_note(line, "{halves swapped}"); }});
  };
  swapped("gate_up_swapped", "gate and up are swapped", "gate_proj", "up_proj");
  swapped("key_value_swapped", "keys and values are swapped", "k_proj", "v_proj");
  swapped("query_key_swapped", "queries and keys are swapped", "q_proj", "k_proj");
  if (m.is_latent()) return;
  const int64_t width = m.head_dim, heads = m.num_attention_heads, groups = m.num_key_value_heads;
  const auto permuted = [&](std::string name, std::string sentence,
                            std::function<int64_t(int64_t i, int64_t count)> from) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .change = [from = std::move(from)](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
           if (!is_of(seen.all.name, {"q_proj", "k_proj", "v_proj", "self_attn.core", "_rotated"}))
             return std::nullopt;
           const std::optional<Outputs> o = outputs_of(seen);
           if (!o) return std::nullopt;
           return taken(reordered(whole, *o, [&](int64_t i) { return from(i, o->count); }), seen.record.slice);
         },
         .text = [](const std::string& line) { return with_note(line, "{heads in another order}"); }});
  };
  const auto transposed = [](int64_t i, int64_t rows, int64_t columns, int64_t inner) {  // of blocks of `inner`
    const int64_t block = i / inner, r = block / columns, c = block % columns;
    return (c * rows + r) * inner + i % inner;
  };
  if (groups > 1 && groups < heads) {
    const int64_t each = heads / groups;
    permuted(
        "heads_by_group", "heads of queries lie by their place in the group, not group by group",
        [=](int64_t i, int64_t count) { return count == heads * width ? transposed(i, groups, each, width) : i; });
    permuted(
        "heads_by_place", "heads of queries lie group by group, where they should lie by their place in it",
        [=](int64_t i, int64_t count) { return count == heads * width ? transposed(i, each, groups, width) : i; });
  }
  permuted(
      "elements_before_heads", "elements of heads are interleaved: element by element, not head by head",
      [=](int64_t i, int64_t count) { return count % width == 0 ? transposed(i, width, count / width, 1) : i; });
  permuted(
      "heads_before_elements", "heads are interleaved: head by head, where elements come first",
      [=](int64_t i, int64_t count) { return count % width == 0 ? transposed(i, count / width, width, 1) : i; });
  permuted("halves_interleaved", "a head's rotary halves are interleaved, or the other way round",
           [=](int64_t i, int64_t) { return i / width * width + transposed(i % width, width / 2, 2, 1); });
  permuted("halves_apart", "a head's rotary pairs lie in halves, or the other way round",
           [=](int64_t i, int64_t) { return i / width * width + transposed(i % width, 2, width / 2, 1); });
  for (int64_t by = 1; by < std::min<int64_t>(heads, 9); ++by) {
    permuted(fmt::format("heads_shifted.{}", by), fmt::format("heads are shifted by {}", by),
             [=](int64_t i, int64_t count) { return (i + by * width) % count; });
  }
  permuted("heads_backwards", "heads lie in the opposite order",
           [=](int64_t i, int64_t count) { return count - width - i / width * width + i % width; });
  // A joint product of queries, keys and values is read as [q | k | v] though its rows lie group by group, or the
  // other way round. Each rank of tp does so by itself.
  const auto joint = [&](std::string name, std::string sentence, bool lies_by_group) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .change = [=, tp = s.layout.mesh.tp](const Numbers&, const Seen& seen) -> std::optional<Numbers> {
           int which = -1;
           std::array<const Whole*, 3> wholes{};
           const std::array<std::string, 3> names{"q_proj", "k_proj", "v_proj"};
           for (int i = 0; i < 3; ++i) {
             if (is_of(seen.all.name, {names[static_cast<size_t>(i)].c_str()})) which = i;
           }
           for (size_t i = 0; i < 3 && which >= 0; ++i)
             wholes[i] =
                 other_module(seen, with_module(seen.all.name, names[static_cast<size_t>(which)], names[i]));
           if (which < 0 || wholes[0] == nullptr || wholes[1] == nullptr || wholes[2] == nullptr)
             return std::nullopt;
           const std::optional<Outputs> o = outputs_of(seen);
           if (!o || groups % tp != 0) return std::nullopt;
           const int64_t own_groups = groups / tp, each = heads / groups;
           // Block (module, head) of the rank's joint product, in either order.
           const auto block_by_group = [&](int64_t block) {
             const int64_t group = block / (each + 2), place = block % (each + 2);
             return place < each ? std::pair<int, int64_t>{0, group * each + place}
                                 : std::pair<int, int64_t>{static_cast<int>(place - each) + 1, group};
           };
           const auto block_apart = [&](int64_t block) {
             if (block < own_groups * each) return std::pair<int, int64_t>{0, block};
             block -= own_groups * each;
             return std::pair<int, int64_t>{static_cast<int>(block / own_groups) + 1, block % own_groups};
           };
           const auto number_of = [&](const auto& order, int module, int64_t head) {
             for (int64_t b = 0; b < own_groups * (each + 2); ++b) {
               if (order(b) == std::pair<int, int64_t>{module, head}) return b;
             }
             return int64_t{0};
           };
           Numbers turned(static_cast<size_t>(o->before * o->count * o->behind));
           const int64_t own_heads = o->count / width / tp;
           for (int64_t h = 0; h < o->count / width; ++h) {
             const int64_t rank = h / own_heads, head = h % own_heads;
             const auto [module, source] = lies_by_group ? block_by_group(number_of(block_apart, which, head))
                                                         : block_apart(number_of(block_by_group, which, head));
             const Whole& from = *wholes[static_cast<size_t>(module)];
             const int64_t from_count = std::ssize(from.values) / (o->before * o->behind);
             const int64_t at = rank * (from_count / width / tp) + source;
             for (int64_t b = 0; b < o->before; ++b)
               std::copy_n(from.values.begin() + (b * from_count + at * width) * o->behind, width * o->behind,
                           turned.begin() + (b * o->count + h * width) * o->behind);
           }
           return taken(turned, seen.record.slice);
         },
         .text = [](const std::string& line) { return with_note(line, "{joint product read in another order}"); }});
  };
  joint("qkv_read_apart",
        "the joint product of queries, keys and values lies group by group and is read as three blocks", true);
  joint("qkv_read_by_group",
        "the joint product of queries, keys and values lies in three blocks and is read group by group", false);
}

void bias_faults(const Setting& s, std::vector<Fault>& all) {
  const int tp = s.layout.mesh.tp;
  const auto with_bias = [&](std::string name, std::string sentence, double times) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [times](const Numbers& whole, const Seen& seen) -> std::optional<Numbers> {
                     if (seen.all.stage != Stage::forward) return std::nullopt;
                     const auto bias = seen.reference.dump().start.find(seen.all.name + ".bias");
                     const int64_t width = seen.record.slice.of.back();
                     if (bias == seen.reference.dump().start.end() || std::ssize(bias->second.second) != width)
                       return std::nullopt;
                     Numbers changed = whole;
                     for (size_t i = 0; i < changed.size(); ++i)
                       changed[i] += times * bias->second.second[i % static_cast<size_t>(width)];
                     return taken(changed, seen.record.slice);
                   },
                   .text =
                       [times](const std::string& line) {
                         return with_note(line, fmt::format("{{bias × {:g}}}", times + 1));
                       }});
  };
  with_bias("no_bias", "its bias is not added", -1);
  with_bias("bias_twice", "its bias is added twice", 1);
  if (tp > 2) with_bias("bias_on_each.tp", "its bias is added on each rank of tp ahead of the sum", tp - 1);
  if (tp > 1) with_bias("bias_divided.tp", "its bias is divided by the degree of tp", 1.0 / tp - 1);
}

}  // namespace heddle::check
