#include "heddle/passes/overlap/tiles.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "heddle/ir/uses.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::Phase;
using ir::ValueId;

// The cutter of ops, each by its index in the list.
class Tiler {
 public:
  Tiler(Listing& listing, const WorthCutting& worth) : listing_(listing), writers_(listing.values.size(), 0) {
    const ir::Uses uses(listing);
    for (const Op& op : listing.ops) {
      for (const ValueId id : op.out) ++writers(id);
      if (op.def->drops) {
        for (const ValueId id : op.in) writers(id) = 2;  // made again
      }
    }
    const size_t count = listing.ops.size();
    run_.assign(count, 0);
    runs_.assign(count, 0);
    std::vector<bool> able(count);
    for (size_t i = 0; i < count; ++i) able[i] = may_be_cut(listing.ops[i]);
    link(uses, able);
    for (size_t i = 0; i < count; ++i) {
      if (able[i] && listing.ops[i].def->collective && next_to_product(i) && worth(listing, listing.ops[i]))
        run_[i] = run_of(listing, listing.ops[i]), runs_[i] = listing.ops[i].attributes.integer("runs");
    }
    spread();
  }

  std::vector<size_t> collectives() const {
    std::vector<size_t> found;
    for (size_t i = 0; i < run_.size(); ++i) {
      if (run_[i] > 0 && listing_.ops[i].def->collective) found.push_back(i);
    }
    return found;
  }

  void cut(int panels) {
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      if (run_[i] == 0) {
        listing_.ops.push_back(std::move(ops[i]));
        continue;
      }
      const int64_t runs = runs_[i], rows = run_[i];
      const bool whole_runs = runs % panels == 0;
      const int64_t count = whole_runs ? panels : std::min<int64_t>(panels, rows);
      for (int64_t p = 0; p < count; ++p) {
        Op panel = ops[i];
        for (ValueId* id : by_row(panel)) {
          const int64_t all = listing_.value(*id).shape[0].count;
          *id = whole_runs ? listing_.rows(*id, p * all / count, (p + 1) * all / count)
                           : listing_.rows(*id, p * rows / count, (p + 1) * rows / count, rows);
        }
        if (whole_runs && panel.def->collective) panel.attributes.set("runs", runs / count);
        listing_.ops.push_back(std::move(panel));
      }
    }
  }

 private:
  int& writers(ValueId id) { return writers_[listing_.base(id)]; }

  // The operands and results that are taken by rows.
  static std::vector<ValueId*> by_row(Op& op) {
    std::vector<ValueId*> ids;
    const auto add = [&](std::vector<ValueId>& of, std::string_view names) {
      const std::vector<std::string_view> all = ir::names_in(names);
      for (size_t i = 0; i < of.size(); ++i) {
        if (of[i] != none && ir::place_of(all[i], op.def->by_row) >= 0) ids.push_back(&of[i]);
      }
    };
    add(op.in, op.def->operands);
    add(op.out, op.def->results);
    return ids;
  }
  static std::vector<ValueId> row_values(const Op& op) {
    Op copy = op;
    std::vector<ValueId> ids;
    for (const ValueId* id : by_row(copy)) ids.push_back(*id);
    return ids;
  }
  static bool is_result(const Op& op, ValueId id) {
    return std::find(op.out.begin(), op.out.end(), id) != op.out.end();
  }

  bool may_be_cut(const Op& op) {
    if (op.def->by_row.empty() || !op.updates.empty() || op.condition || op.ahead) return false;
    if (op.phase != Phase::F && op.phase != Phase::I) return false;
    const std::vector<ValueId> rows = row_values(op);
    if (std::ssize(rows) < std::ssize(op.out) + 1) return false;
    for (const ValueId id : op.out) {
      if (std::find(rows.begin(), rows.end(), id) == rows.end() || writers(id) > 1) return false;
    }
    for (const ValueId id : rows) {
      const ir::Value& v = listing_.value(id);
      const bool fixed =
          std::all_of(v.shape.begin(), v.shape.end(), [](const ir::Dim& d) { return d.is_static(); });
      if (!fixed || v.shape.empty() || v.shape[0].count == 0 || ir::is_persistent(v.role) || v.part_of != none ||
          v.layout != ir::Layout::rows || v.space != ir::Space::device || writers(id) > 1) {
        return false;
      }
    }
    return !op.def->collective || (op.attributes.integer_or("zigzag", 0) == 0 && run_of(listing_, op) > 1);
  }

  // Finds which ops hand rows to which, among those that may be cut.
  void link(const ir::Uses& uses, const std::vector<bool>& able) {
    to_.resize(listing_.ops.size());
    from_.resize(listing_.ops.size());
    for (size_t i = 0; i < listing_.ops.size(); ++i) {
      if (!able[i]) continue;
      const Op& op = listing_.ops[i];
      for (const ValueId id : row_values(op)) {
        if (is_result(op, id)) continue;
        const int writer = uses.writer_index(id);
        if (writer < 0 || !able[writer]) continue;
        const Op& maker = listing_.ops[writer];
        if (maker.phase != op.phase || maker.chunk != op.chunk) continue;
        from_[i].push_back(static_cast<size_t>(writer));
        to_[writer].push_back(i);
      }
    }
  }

  bool is_product(size_t i) const {
    const Op& op = listing_.ops[i];
    return op.def->cost(listing_, op, ir::FixedRows()).flops > 0;
  }
  bool next_to_product(size_t i) const {
    const auto product = [&](size_t k) { return is_product(k); };
    return std::any_of(to_[i].begin(), to_[i].end(), product) ||
           std::any_of(from_[i].begin(), from_[i].end(), product);
  }

  // Products beside the collectives, and what lies between two collectives, as far as all have the same runs.
  void spread() {
    const size_t count = listing_.ops.size();
    using Runs = std::pair<int64_t, int64_t>;  // rows of one, and how many
    // Runs of a collective before it, and of one after it.
    std::vector<Runs> behind(count), ahead(count);
    const auto reach = [&](size_t i, const std::vector<size_t>& neighbours, std::vector<Runs>& run) {
      if (listing_.ops[i].def->collective) return;
      for (const size_t k : neighbours) {
        if (run_[k] > 0 && listing_.ops[k].def->collective) run[i] = {run_[k], runs_[k]};
        if (run[i] == Runs() && !listing_.ops[k].def->collective) run[i] = run[k];
      }
    };
    for (size_t i = 0; i < count; ++i) reach(i, from_[i], behind);
    for (size_t i = count; i-- > 0;) reach(i, to_[i], ahead);
    for (size_t i = 0; i < count; ++i) {
      if (listing_.ops[i].def->collective) continue;
      const auto collective = [&](size_t k) { return listing_.ops[k].def->collective && run_[k] > 0; };
      const bool beside = std::any_of(from_[i].begin(), from_[i].end(), collective) ||
                          std::any_of(to_[i].begin(), to_[i].end(), collective);
      const bool comes = behind[i] != Runs(), goes = ahead[i] != Runs();
      const auto [run, runs] = comes ? behind[i] : ahead[i];
      if (!(comes && goes) && !(beside && is_product(i))) continue;
      if (comes && goes && behind[i] != ahead[i]) continue;
      const std::vector<ValueId> rows = row_values(listing_.ops[i]);
      const int64_t all = listing_.value(rows[0]).shape[0].count;
      if (std::all_of(rows.begin(), rows.end(), [&](ValueId id) {
            const int64_t of = listing_.value(id).shape[0].count;
            return of == all && of % (run * runs) == 0;
          })) {
        run_[i] = run, runs_[i] = runs;
      }
    }
  }

  Listing& listing_;
  std::vector<int> writers_;  // by base
  std::vector<std::vector<size_t>> to_, from_;
  std::vector<int64_t> run_;   // rows of a run that is cut; 0: the op stays whole
  std::vector<int64_t> runs_;  // how many there are
};

}  // namespace

int64_t run_of(const Listing& listing, const Op& op) {
  const int64_t in = listing.value(op.in[0]).shape[0].count, out = listing.value(op.out[0]).shape[0].count;
  return std::min(in, out) / op.attributes.integer("runs");
}

int64_t rows_of_panel(const Listing& listing, const Op& op, int panels) {
  const int64_t run = run_of(listing, op), runs = op.attributes.integer("runs");
  return runs % panels == 0 ? run * runs / panels : run / panels;
}

void tiles(Listing& listing, int panels, const WorthCutting& worth) { Tiler(listing, worth).cut(panels); }

std::vector<size_t> collectives_to_cut(const Listing& listing, const WorthCutting& worth) {
  Listing copy = listing;
  return Tiler(copy, worth).collectives();
}

}  // namespace heddle::passes
