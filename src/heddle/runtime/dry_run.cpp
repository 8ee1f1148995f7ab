#include "heddle/runtime/dry_run.h"

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "heddle/backends/backend.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"

namespace heddle::runtime {

simulate::ScratchBytes kernel_scratch(const ir::StepProgram& program, std::string_view backend, int rank) {
  struct Scratch {
    int64_t (*own)(const ir::Listing&, const ir::Op&, const ir::RowCounts&) = nullptr;
    std::shared_ptr<const backends::InnerProduct> product;
  };
  auto scratch = std::make_shared<std::vector<std::vector<Scratch>>>();
  const backends::Backend& runs = backends::named(backend);
  std::vector<int> listings(program.listings.size());
  std::iota(listings.begin(), listings.end(), 0);
  if (rank >= 0) listings = program.listings_of(rank);
  scratch->resize(program.listings.size());
  for (const int s : listings) {
    const ir::Listing& listing = program.listings[s];
    std::vector<Scratch>& of = (*scratch)[s];
    for (const ir::Op& op : listing.ops) {
      const comm::Collective* collective = runs.find_collective(op.kind());
      Scratch& one = of.emplace_back();
      if (!ir::runs(*op.def) || (collective == nullptr && runs.kernels().empty())) continue;
      one.own = collective != nullptr ? collective->scratch_bytes : runs.select_kernel(listing, op).scratch_bytes;
      if (!runs.kernels().empty()) one.product = runs.inner_product(listing, op);
    }
  }
  return [&program, scratch](int listing, uint32_t op, const ir::RowCounts& rows) -> int64_t {
    const Scratch& of = (*scratch)[listing][op];
    const ir::Listing& text = program.listings[listing];
    const int64_t own = of.own == nullptr ? 0 : of.own(text, text.ops[op], rows);
    return of.product ? backends::scratch_with_product(*of.product, text, rows, own) : own;
  };
}

const ir::Op& shared_counts_of(const ir::Listing& listing, const ir::Op& to_host) {
  const ir::ValueId counts = to_host.operand("counts");
  const ir::Op* counted = nullptr;
  for (const ir::Op& op : listing.ops) {
    if (op.def->moves == ir::Moves::counts && op.result("counts") == counts) counted = &op;
  }
  HEDDLE_CHECK(counted != nullptr, "'{}' copies no shared counts", ir::text_of(listing, to_host));
  return *counted;
}

int64_t balanced_rows_of(const ir::Listing& listing, const ir::Op& counted, size_t output, double crowding) {
  const std::string& topology = counted.attributes.word("topology");
  const int64_t tokens = listing.value(counted.operand("experts")).shape[0].count;
  const int64_t rows = ops::even_rows(listing, counted);
  const bool passes = topology != "plain" && topology != "rank";
  const bool received = output == 0 || output == 4;  // rows received by this rank, or by the one with most
  const int64_t balanced = received ? rows : !passes || output == 3 ? 0 : output == 1 ? tokens : rows;
  return static_cast<int64_t>(std::ceil(crowding * static_cast<double>(balanced)));
}

simulate::RowsRead balanced_rows(const ir::StepProgram& program, double crowding) {
  // The ops of each listing that count, by what they count: each layer of each microbatch asks for one.
  auto counted = std::make_shared<std::vector<std::map<ir::ValueId, const ir::Op*>>>();
  for (const ir::Listing& listing : program.listings) {
    std::map<ir::ValueId, const ir::Op*>& of = counted->emplace_back();
    for (const ir::Op& op : listing.ops) {
      if (op.def->moves == ir::Moves::counts) of[op.result("counts")] = &op;
    }
  }
  return [&program, crowding, counted](int, const ir::Issue& issue, size_t output) {
    const auto at = static_cast<size_t>(issue.listing);
    const auto found = (*counted)[at].find(issue.op->operand("counts"));
    HEDDLE_CHECK(found != (*counted)[at].end(), "'{}' copies no shared counts",
                 ir::text_of(program.listings[at], *issue.op));
    return balanced_rows_of(program.listings[at], *found->second, output, crowding);
  };
}

}  // namespace heddle::runtime
