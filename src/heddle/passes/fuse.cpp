#include "heddle/passes/fuse.h"

#include <algorithm>
#include <optional>

#include "heddle/ops/ops.h"
#include "heddle/passes/stands_for.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::Op;
using ir::ValueId;

struct Fusion {
  std::string_view name, fused;      // the switch, the kind of op
  std::string_view stands_for = {};  // where it is something else than its definition says
};

// `combine` comes before `norm`: both want the addition that follows the experts. An activation takes its bias
// before the product does, and so does dropout, which takes the addition before a norm does.
constexpr Fusion kForward[] = {
    {"combine", "unpermute"},
    {"combine", "combine"},
    {"dropout_add", "dropout_add"},
    {"dropout_add", "dropout_add", "biased = add_bias x bias\ny = dropout_add biased residual tokens key"},
    {"norm", "add_rms_norm"},
    {"norm", "add_layer_norm"},
    {"swiglu", "swiglu"},
    {"bias_swiglu", "swiglu", "biased = add_bias u bias\na = swiglu biased"},
    {"bias_swiglu", "clamped_swiglu", "biased = add_expert_bias u bias offsets\na = clamped_swiglu biased"},
    {"bias_swiglu", "clamped_swiglu", "biased = add_expert_bias u bias offsets copies\na = clamped_swiglu biased"},
    {"gelu", "gelu", "biased = add_bias x bias\ny = gelu biased"},
    {"bias", "linear", "own = linear x w\ny = add_bias own bias"},
    {"rope", "mla_rope"},
    {"router", "router"},
    {"loss", "linear_cross_entropy"},
    {"loss", "linear_token_losses"}};

// The place of a fused op: with the first of its parts, or right behind what writes the last of its operands.
int place_of(const ir::Uses& uses, const Match& match, const Op& fused) {
  int place = *std::min_element(match.ops.begin(), match.ops.end());
  for (const ValueId id : fused.in) {
    if (id != ir::none) place = std::max(place, uses.writer_index(id) + 1);
  }
  return place;
}

// True if an op reads what the fused one makes before that stands.
bool read_before(const ir::Uses& uses, const Match& match, const Op& fused, int place) {
  return std::any_of(fused.out.begin(), fused.out.end(), [&](ValueId id) {
    const auto readers = uses.readers(id);
    return std::any_of(readers.begin(), readers.end(), [&](int reader) {
      return reader < place && std::find(match.ops.begin(), match.ops.end(), reader) == match.ops.end();
    });
  });
}

// Leaves out the ops that are gone; each new op comes ahead of the old one with its index.
void rewrite(Listing& listing, const std::vector<bool>& gone, std::multimap<int, Op> ahead_of) {
  std::vector<Op> ops;
  for (int i = 0; i < std::ssize(listing.ops); ++i) {
    const auto [first, last] = ahead_of.equal_range(i);
    for (auto at = first; at != last; ++at) ops.push_back(std::move(at->second));
    if (!gone[i]) ops.push_back(std::move(listing.ops[i]));
  }
  listing.ops = std::move(ops);
}

// Puts the fused op instead of all ops of a listing that it can stand for. `known`: the uses as the list stands
// now, if anybody has looked.
void fuse_all(Listing& listing, const Pattern& pattern, std::optional<ir::Uses>& known) {
  if (!known) known.emplace(listing);
  const ir::Uses& uses = *known;
  std::vector<bool> gone(listing.ops.size(), false);
  std::multimap<int, Op> fused_at;
  for (int i = 0; i < std::ssize(listing.ops); ++i) {
    const std::optional<Match> match = pattern.find(uses, i);
    if (!match || std::any_of(match->ops.begin(), match->ops.end(), [&](int op) { return gone[op]; })) continue;
    Op fused = pattern.fused_op(uses, *match);
    const int place = place_of(uses, *match, fused);
    if (read_before(uses, *match, fused, place)) continue;
    for (const int op : match->ops) gone[op] = true;
    fused_at.emplace(place, std::move(fused));
  }
  if (fused_at.empty()) return;
  rewrite(listing, gone, std::move(fused_at));
  known.reset();
}

}  // namespace

const std::vector<std::string>& fusion_names() {
  static const std::vector<std::string> names{"norm", "swiglu", "bias_swiglu", "gelu", "bias", "dropout_add",
                                              "rope", "router", "combine",     "loss", "adamw"};
  return names;
}

void fuse(Listing& listing, const std::set<std::string>& wanted) {
  for (const std::string& name : wanted) {
    if (std::find(fusion_names().begin(), fusion_names().end(), name) == fusion_names().end()) {
      config_error("unknown fusion '{}'{}", name, did_you_mean(name, fusion_names()));
    }
  }
  std::optional<ir::Uses> uses;
  for (const Fusion& fusion : kForward) {
    if (!wanted.contains(std::string(fusion.name))) continue;
    const ir::OpDef& def = ops::find(fusion.fused);
    fuse_all(listing, Pattern(def, fusion.stands_for.empty() ? def.stands_for : fusion.stands_for), uses);
  }
}

void fuse_norm_gradient(Listing& listing) {
  std::optional<ir::Uses> uses;
  for (const char* norm : {"rms_norm_dgrad", "layer_norm_dgrad", "read_streams_dgrad", "norm_streams_dgrad"})
    fuse_all(listing, Pattern(ops::find(norm)), uses);
}

void fuse_loss(Listing& listing) {
  const Pattern pattern(ops::find("linear_cross_entropy_train"));
  const ir::Uses uses(listing);
  std::vector<bool> gone(listing.ops.size(), false);
  std::multimap<int, Op> instead;  // of the op with that index
  for (int i = 0; i < std::ssize(listing.ops); ++i) {
    const std::optional<Match> match = pattern.find(uses, i);
    if (!match) continue;
    const int forward = match->ops[0], dgrad = match->ops[1], wgrad = match->ops[2];
    Op fused = pattern.fused_op(uses, *match);
    fused.phase = ir::Phase::I;
    fused.part = "";
    for (const int op : match->ops) gone[op] = true;
    // An op that sums the loss up in F does so where the loss is now made, after it.
    for (const ValueId made : {uses.op(forward).result("loss"), uses.op(forward).result("z")}) {
      if (made == ir::none) continue;
      for (const int reader : uses.readers(made)) {
        Op sum = uses.op(reader);
        sum.phase = ir::Phase::I;
        instead.emplace(wgrad, std::move(sum));
        gone[reader] = true;
      }
    }
    instead.emplace(dgrad, std::move(fused));
  }
  rewrite(listing, gone, std::move(instead));
}

}  // namespace heddle::passes
