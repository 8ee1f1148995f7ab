#include "heddle/ir/print.h"

#include <algorithm>

#include "heddle/ir/parse.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

namespace {

std::string joined(const Listing& listing, const std::vector<ValueId>& ids) {
  std::string out;
  for (const ValueId id : ids) {
    out += out.empty() ? "" : ", ";
    out += id == none ? "none" : listing.value(id).name;
  }
  return out;
}

// The part and the chunk of an op: "  @router #1".
std::string tags_of(const Op& op) {
  std::string tags = op.part.empty() ? "" : " @" + op.part;
  if (op.chunk == kAllChunks) {
    tags += " #all";
  } else if (op.chunk != 0) {
    tags += fmt::format(" #{}", op.chunk);
  }
  return tags.empty() ? "" : " " + tags;
}

// "  comm.tp", or "  on comm.quiet over tp" where it says itself on which stream it runs.
std::string stream_place(const Op& op) {
  const std::string usual = usual_stream(op);
  std::string text = op.stream.empty() ? usual : "on " + op.stream;
  if (communicates(*op.def) && (!op.stream.empty() || group_of_stream(usual) != op.group))
    text += " over " + op.group;
  return text;
}

// The values that no op writes as a whole, but parts of them.
std::vector<bool> made_of_parts(const Listing& listing) {
  std::vector<bool> made(listing.values.size(), false), whole(listing.values.size(), false);
  for (const Op& op : listing.ops) {
    for (const ValueId id : op.out) {
      whole[id] = true;
      if (listing.value(id).part_of != none) made[listing.base(id)] = true;
    }
  }
  for (size_t v = 0; v < made.size(); ++v) made[v] = made[v] && !whole[v];
  return made;
}

bool has_usual_chunk(const Listing& listing) {
  return listing.chunks.size() == 1 && listing.chunks[0].route == 0 && listing.chunks[0].routes == 1;
}

}  // namespace

std::string text_of(const Attributes::Item& item) {
  const std::string* word = std::get_if<std::string>(&item);
  if (word == nullptr) return std::visit([](const auto& value) { return fmt::format("{}", value); }, item);
  const bool is_plain = !word->empty() && word->find_first_of(" ,{}()\"") == std::string::npos &&
                        std::holds_alternative<std::string>(item_of(*word));
  return is_plain ? *word : fmt::format("\"{}\"", *word);
}

std::string text_of(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, item] : attributes.items()) {
    out += out.empty() ? "" : ", ";
    out += name + " " + text_of(item);
  }
  return out.empty() ? "" : " {" + out + "}";
}

std::string text_of(const Listing& listing, const Value& value) {
  std::string dims;
  for (const Dim& dim : value.shape) {
    dims += dims.empty() ? "" : ", ";
    if (dim.is_static()) {
      dims += fmt::format("{}", dim.count);
    } else {
      dims += (dim.count == 1 ? "" : fmt::format("{}·", dim.count)) + "rows " + listing.value(dim.rows_of).name;
    }
  }
  std::string text = fmt::format("{}[{}]", heddle::name_of(value.dtype), dims);
  if (value.layout == Layout::packed) text += " packed";
  if (value.packed_bytes != 0) text += fmt::format(" in {} bytes", value.packed_bytes);
  if (value.frozen) text += " frozen";
  if (value.space != Space::device) text += fmt::format(" {}", name_of(value.space));
  if (value.shared_with >= 0) text += fmt::format(" of listing {}", value.shared_with);
  return text;
}

std::string text_of(const Listing& listing, const Op& op) {
  std::string line;
  if (!op.out.empty()) line += joined(listing, op.out) + " = ";
  line += op.kind();
  if (!op.in.empty()) line += " " + joined(listing, op.in);
  if (!op.updates.empty()) line += " -> " + joined(listing, op.updates);
  if (!op.mentions.empty()) line += " (" + joined(listing, op.mentions) + ")";
  line += text_of(op.attributes);
  if (op.fresh) line += " fresh";
  if (op.beside) line += " beside";
  if (op.ahead) line += " ahead";
  if (op.again) line += " again";
  if (op.later) line += " later";
  if (op.trails) line += " trails";
  if (const Condition& condition = op.condition) {
    line += fmt::format(" if {} {} {}", listing.value(condition.rows_of).name,
                        condition.more ? ">" : "<=", condition.limit);
  }
  return fmt::format("{:<100}  {}{}{}", line, stream_place(op), op.def->host_stall ? "  stall" : "", tags_of(op));
}

std::string text_of(const Listing& listing) {
  std::string out = listing.name + "\n";
  if (!has_usual_chunk(listing)) {
    out += "  chunks";
    for (const Chunk& chunk : listing.chunks) out += fmt::format(" {}/{}", chunk.route, chunk.routes);
    out += "\n";
  }
  for (const Input& input : listing.inputs)
    out += fmt::format("  {:<11} {:<44} {}\n", kTakes, input.name, text_of(input));
  const std::vector<bool> of_parts = made_of_parts(listing);
  for (size_t v = 0; v < listing.values.size(); ++v) {
    const Value& value = listing.values[v];
    if (of_parts[v] || (is_persistent(value.role) && value.part_of == none)) {
      out += fmt::format("  {:<11} {:<44} {}\n", name_of(value.role), value.name, text_of(listing, value));
    }
  }
  for (const Phase phase : {Phase::begin, Phase::F, Phase::I, Phase::W, Phase::end}) {
    bool begins = true;
    int layer = -1;
    for (const Op& op : listing.ops) {
      if (op.phase != phase) continue;
      if (begins) out += fmt::format("{}, {}\n", listing.name, name_of(phase));
      if (op.layer != layer) out += op.layer < 0 ? "  no layer\n" : fmt::format("  layer {}\n", op.layer);
      begins = false;
      layer = op.layer;
      out += "    " + text_of(listing, op) + "\n";
    }
  }
  return out;
}

namespace {
// Each part of a block's name with its microbatch: "F0.4|IW0.2".
std::string text_of(const StepProgram& program, const Action& action) {
  std::string text;
  size_t slot = 0;
  const auto number = [&] {
    const int microbatch = slot < action.microbatches.size() ? action.microbatches[slot++] : -1;
    if (microbatch >= 0) text += fmt::format(".{}", microbatch);
  };
  for (const char c : program.blocks[action.block].name) {
    if (c == '|') number();
    text += c;
  }
  while (slot < action.microbatches.size()) number();
  return text;
}
}  // namespace

std::string text_of(const StepProgram& program) {
  std::string out;
  for (const Listing& listing : program.listings) out += text_of(listing) + "\n";
  const auto print = [&](const StepProgram::ActionLists& lists, const std::string& what) {
    for (size_t c = 0; c < lists.size(); ++c) {
      out += fmt::format("{}, ranks of class {}:", what, c);
      for (const Action& action : lists[c]) {
        out += " " + text_of(program, action);
      }
      out += "\n";
    }
  };
  for (int p = 0; p < kPurposes; ++p) print(program.actions[p], std::string(name_of(static_cast<Purpose>(p))));
  for (const auto& [microbatches, lists] : program.fewer)
    print(lists, fmt::format("{} microbatches", microbatches));
  return out;
}

std::string text_around(const StepProgram& program, int rank, int listing, uint32_t op, int microbatch) {
  constexpr size_t kAround = 6;
  const std::vector<Action>& actions = program.actions_of(rank);
  const auto holds = [&](const Action& action) {
    const Block& block = program.blocks[action.block];
    return std::any_of(block.steps.begin(), block.steps.end(), [&](const Step& step) {
      return step.op == op && block.listings[step.slot] == listing && action.microbatches[step.slot] == microbatch;
    });
  };
  const auto found = std::find_if(actions.begin(), actions.end(), holds);
  if (found == actions.end()) return "";
  const auto at = static_cast<size_t>(found - actions.begin());
  std::string text = at > kAround ? "…" : "";
  for (size_t i = at > kAround ? at - kAround : 0; i < std::min(actions.size(), at + kAround + 1); ++i) {
    if (!text.empty()) text += ' ';
    text += i == at ? fmt::format(">{}<", text_of(program, actions[i])) : text_of(program, actions[i]);
  }
  return at + kAround + 1 < actions.size() ? text + " …" : text;
}

}  // namespace heddle::ir
