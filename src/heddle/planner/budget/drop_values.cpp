#include "heddle/planner/budget/drop_values.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "heddle/passes/host/offload.h"

namespace heddle::planner {

namespace {

using Way = Item::Way;

// Words that free something of their own, from the least work on; words for several of them come last.
const std::vector<std::string>& words_again() {
  static const std::vector<std::string> all{"norm",   "activation", "router", "permute",   "mla_up", "expert_up",
                                            "shared", "mlp",        "gather", "attention", "moe",    "layer"};
  return all;
}
const std::vector<std::string>& words_to_host() {
  static const std::vector<std::string> all{passes::kLayerInput, "norm",   "mla_up", "attention", "permute",
                                            "expert_up",         "shared", "mlp",    "moe",       "layer"};
  return all;
}
// Words for the values whose size the rows decide.
const std::vector<std::string>& words_with_limits() {
  static const std::vector<std::string> all{"permute", "expert_up"};
  return all;
}
constexpr double kLimits[] = {4, 3, 2, 1.5, 1.25, 1};

bool of_all_layers(const passes::OpGroup& group) {
  const passes::OpGroup any;
  return group.first_layer == any.first_layer && group.last_layer == any.last_layer;
}

passes::OpGroup group_of(const Item& item) { return {item.word, item.layers.first, item.layers.last, item.above}; }

// The parts into which a kind of layers of a chunk is cut. They are enough to stop short of dropping too much, and
// few enough that the words stay short where there are many stages.
int parts_of(int ranks) {
  constexpr int kAlone = 8, kFewest = 2;
  return std::max(kFewest, kAlone / ranks);
}

}  // namespace

DroppedValues dropped_values(const std::vector<Item>& items) {
  DroppedValues given;
  for (const Item& item : items)
    (item.way == Way::again ? given.recompute : given.offload).push_back(group_of(item));
  return given;
}

DroppedValues in_short(const std::vector<Item>& items, int layers) {
  std::vector<Item> words;  // items in order of their first one
  std::vector<std::set<int>> layers_of;
  for (const Item& item : items) {
    auto at = std::find_if(words.begin(), words.end(), [&](const Item& w) { return w.same_word(item); });
    if (at == words.end()) {
      words.push_back(item);
      layers_of.emplace_back();
      at = std::prev(words.end());
    }
    std::set<int>& of = layers_of[static_cast<size_t>(at - words.begin())];
    for (int l = item.layers.first; l <= item.layers.last; ++l) of.insert(l);
  }
  std::vector<Item> ranges;
  for (size_t w = 0; w < words.size(); ++w) {
    Item item = words[w];
    if (std::ssize(layers_of[w]) == layers) {
      item.layers = {0, passes::OpGroup().last_layer};
      ranges.push_back(item);
      continue;
    }
    item.layers = {-2, -2};
    for (const int l : layers_of[w]) {
      if (l == item.layers.last + 1) {
        item.layers.last = l;
        continue;
      }
      if (item.layers.first >= 0) ranges.push_back(item);
      item.layers = {l, l};
    }
    ranges.push_back(item);
  }
  return dropped_values(ranges);
}

ValueDropper::ValueDropper(std::vector<KeptValues> texts, schedule::Schedule schedule, Open open)
    : texts_(std::move(texts)), orders_(texts_.size()), schedule_(std::move(schedule)), open_(std::move(open)) {
  // Words that are given for some layers alone make like texts unlike.
  const bool all_alike = std::all_of(open_.set.recompute.begin(), open_.set.recompute.end(), of_all_layers) &&
                         std::all_of(open_.set.offload.begin(), open_.set.offload.end(), of_all_layers);
  std::map<std::string, std::shared_ptr<Shape>> shapes;
  for (int r = 0; r < ranks(); ++r) {
    std::shared_ptr<Shape>& shape = shapes[all_alike ? text(r).shape() : std::to_string(r)];
    if (shape == nullptr) {
      shape = std::make_shared<Shape>();
      shape->rank = r;
    }
    shape_of_rank_.push_back(shape);
  }
  const schedule::Placement& placement = schedule_.placement;
  std::map<int, int> family_of_stage;
  for (int r = 0; r < ranks(); ++r) {
    schedule::Schedule& alone = order_of_rank_.emplace_back();
    alone.placement = placement;
    alone.order = {schedule_.order[r]};
    stages_of_rank_.push_back(placement.stages_of(r));
    int family = -1;
    for (const int stage : stages_of_rank_.back()) {
      if (const auto at = family_of_stage.find(stage % placement.stages); at != family_of_stage.end())
        family = at->second;
    }
    if (family < 0) {
      family = static_cast<int>(families_.size());
      families_.emplace_back();
    }
    families_[static_cast<size_t>(family)].push_back(r);
    for (const int stage : stages_of_rank_.back()) family_of_stage[stage % placement.stages] = family;
  }
}

double ValueDropper::kept_bytes(int rank, const Kept& kept) const {
  const schedule::Placement& placement = schedule_.placement;
  std::vector<schedule::StageBytes> of_stage(static_cast<size_t>(placement.stages), {0, 0});
  const std::vector<int>& own = stages_of_rank_[rank];
  for (size_t c = 0; c < own.size(); ++c) of_stage[static_cast<size_t>(own[c] % placement.stages)] = kept.chunks[c];
  return schedule::peaks_of(order_of_rank_[rank], of_stage)[0].bytes;
}

const Kept& ValueDropper::kept(int rank, const std::vector<Item>& items) const {
  Shape& shape = *shape_of_rank_[rank];
  const int first = text(rank).first_layer();
  std::string key;
  for (const Item& item : items) {
    key += item.word;
    for (const double n :
         {static_cast<double>(item.way), item.above, static_cast<double>(item.layers.first - first),
          static_cast<double>(item.layers.last - first)})
      key.append(reinterpret_cast<const char*>(&n), sizeof n);  // only compared
  }
  {
    const std::lock_guard lock(shape.mutex);
    if (const auto at = shape.known.find(key); at != shape.known.end()) return at->second;
  }
  std::vector<Item> there = items;
  for (Item& item : there) {
    item.layers.first += text(shape.rank).first_layer() - first;
    item.layers.last += text(shape.rank).first_layer() - first;
  }
  DroppedValues given = dropped_values(there);
  given.recompute.insert(given.recompute.end(), open_.set.recompute.begin(), open_.set.recompute.end());
  given.offload.insert(given.offload.end(), open_.set.offload.begin(), open_.set.offload.end());
  Kept kept = text(shape.rank).with(given);
  const std::lock_guard lock(shape.mutex);
  return shape.known.try_emplace(std::move(key), std::move(kept)).first->second;
}

int ValueDropper::worked_out() const {
  std::set<const Shape*> counted;
  int sum = 0;
  for (const std::shared_ptr<Shape>& shape : shape_of_rank_) {
    if (counted.insert(shape.get()).second) sum += static_cast<int>(shape->known.size());
  }
  return sum;
}

std::vector<Item> ValueDropper::choices(int rank) const {
  std::vector<Item> all;
  for (const LayerRun& run : text(rank).runs(parts_of(ranks()))) {
    if (open_.recompute) {
      for (const std::string& word : words_again()) all.push_back({Way::again, word, 0, run});
    }
    if (open_.offload) {
      for (const std::string& word : words_to_host()) all.push_back({Way::to_host, word, 0, run});
    }
  }
  return all;
}

const std::vector<std::vector<std::string>>& ValueDropper::few_words() {
  static const std::vector<std::vector<std::string>> all{{},
                                                         {"norm"},
                                                         {"norm", "activation"},
                                                         {"norm", "activation", "mla_up"},
                                                         {"norm", "light"},
                                                         {"norm", "mla_up", "light", "expert_up"},
                                                         {"norm", "mla_up", "medium", "mlp"}};
  return all;
}

std::vector<Item> ValueDropper::all_of(int rank, const std::vector<std::string>& words) const {
  std::vector<Item> all;
  for (const LayerRun& run : text(rank).runs(parts_of(ranks()))) {
    for (const std::string& word : words) all.push_back({Way::again, word, 0, run});
    if (!text(rank).spreads() || !run.routed) continue;
    for (const std::string& word : words_with_limits())
      all.push_back({Way::again, word, kLimits[std::size(kLimits) - 1], run});
  }
  return all;
}

std::vector<Item> ValueDropper::everything(int rank) const {
  std::vector<Item> all;
  for (const LayerRun& run : text(rank).runs(parts_of(ranks()))) {
    if (open_.recompute) all.push_back({Way::again, "layer", 0, run});
    if (open_.offload) all.push_back({Way::to_host, passes::kLayerInput, 0, run});
    if (open_.offload && !open_.recompute) all.push_back({Way::to_host, "layer", 0, run});
  }
  return all;
}

bool ValueDropper::drop_with_limits(int rank, double most_bytes, std::vector<Item>& items) const {
  const std::vector<LayerRun> runs = text(rank).runs(parts_of(ranks()));
  std::vector<Item> others;
  for (const Item& item : items) {
    const bool own = std::any_of(runs.begin(), runs.end(), [&](const LayerRun& r) { return r == item.layers; });
    if (item.above == 0 || !own) others.push_back(item);
  }
  for (const double limit : kLimits) {
    std::vector<Item> with = others;
    for (const std::string& word : words_with_limits()) {
      for (const LayerRun& run : runs) {
        if (run.routed) with.push_back({Way::again, word, limit, run});
      }
    }
    if (kept_bytes(rank, with) > most_bytes && limit != kLimits[std::size(kLimits) - 1]) continue;
    items = std::move(with);
    break;
  }
  return kept_bytes(rank, items) <= most_bytes;
}

double ValueDropper::worth(int rank, const Order& order, const Item& item) const {
  std::vector<Item> with = order.items;
  with.push_back(item);
  const Kept& then = kept(rank, with);
  const double frees_bytes = order.left_bytes.back() - kept_bytes(rank, then);
  return frees_bytes / (std::max(0.0, then.price_us - order.now->price_us) + 1e-3);
}

ValueDropper::Order ValueDropper::begun(int rank, const std::vector<Item>& items) const {
  Order order;
  order.all = choices(rank);
  order.items = items;
  order.before = items.size();
  order.now = &kept(rank, items);
  order.left_bytes = {kept_bytes(rank, *order.now)};
  std::map<std::tuple<int, std::string, double, int>, double> known;  // prices of runs that are alike
  const auto width = [](const Item& i) { return i.layers.last - i.layers.first + 1; };
  for (size_t i = 0; i < order.all.size(); ++i) {
    const Item& item = order.all[i];
    const std::tuple key(static_cast<int>(item.way), item.word, item.above, item.layers.alike * 64 + width(item));
    const auto [at, fresh] = known.try_emplace(key, 0);
    if (fresh) at->second = worth(rank, order, item);
    if (at->second > 0) order.queue.push({at->second, i, fresh ? items.size() : SIZE_MAX});
  }
  return order;
}

// False where nothing is left that frees anything.
bool ValueDropper::take_next(int rank, Order& order) const {
  while (!order.queue.empty()) {
    Order::Entry best = order.queue.top();
    order.queue.pop();
    const Item& item = order.all[best.item];
    if (best.at != order.items.size()) {
      best.worth = worth(rank, order, item);
      best.at = order.items.size();
      if (best.worth > 0) order.queue.push(best);
      continue;
    }
    order.items.push_back(item);
    order.now = &kept(rank, order.items);
    order.left_bytes.push_back(kept_bytes(rank, *order.now));
    return true;
  }
  return false;
}

bool ValueDropper::drop(int rank, double most_bytes, std::vector<Item>& items) const {
  if (kept_bytes(rank, items) <= most_bytes) return true;
  if (open_.recompute && text(rank).spreads() && drop_with_limits(rank, most_bytes, items)) return true;
  const DroppedValues from = dropped_values(items);
  const auto [at, fresh] =
      orders_[rank].try_emplace(passes::text_of(from.recompute) + ";" + passes::text_of(from.offload));
  Order& order = at->second;
  if (fresh) order = begun(rank, items);
  while (order.left_bytes.back() > most_bytes && take_next(rank, order)) continue;
  size_t taken = 0;
  while (taken + 1 < order.left_bytes.size() && order.left_bytes[taken] > most_bytes) ++taken;
  items.assign(order.items.begin(), order.items.begin() + static_cast<std::ptrdiff_t>(order.before + taken));
  return order.left_bytes[taken] <= most_bytes;
}

bool ValueDropper::keep_again(const std::vector<int>& family, const std::vector<double>& most_bytes,
                              std::vector<Item>& items) const {
  const auto fits = [&](const std::vector<Item>& left) {
    return std::all_of(family.begin(), family.end(), [&](int r) { return kept_bytes(r, left) <= most_bytes[r]; });
  };
  const auto price = [&](const std::vector<Item>& of) {
    double sum = 0;
    for (const int r : family) sum += kept(r, of).price_us;
    return sum;
  };
  const auto without = [&](size_t i) {
    std::vector<Item> left = items;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    return left;
  };
  // Items of no use beside the others come first, then the dearest.
  const double all_us = price(items);
  std::vector<std::pair<double, Item>> order;
  for (size_t i = 0; i < items.size(); ++i) order.emplace_back(all_us - price(without(i)), items[i]);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return (a.first <= 0) != (b.first <= 0) ? a.first <= 0 : a.first > b.first;
  });
  bool any = false;
  for (const auto& [us, item] : order) {
    const auto at = std::find_if(items.begin(), items.end(), [&](const Item& i) {
      return i.same_word(item) && i.layers.first == item.layers.first;
    });
    std::vector<Item> left = without(static_cast<size_t>(at - items.begin()));
    if (!fits(left)) continue;
    items = std::move(left);
    any = true;
  }
  return any;
}

}  // namespace heddle::planner
