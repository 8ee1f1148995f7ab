// Token files are told apart by what is in them.
#include "heddle/data/content_hash.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

uint64_t hash_of(const std::vector<std::vector<TokenId>>& documents, int64_t vocabulary = 1000) {
  const ScratchFolder folder;
  TokenFileWriter writer(folder / "text", vocabulary);
  for (const std::vector<TokenId>& ids : documents) writer.add_document(ids);
  writer.commit();
  return content_hash(TokenFile(folder / "text"));
}

TEST(ContentHash, IdsTheirOrderAndTheirDocumentsCount) {
  const std::set<uint64_t> hashes{hash_of({{1, 2, 3}, {4, 5}}), hash_of({{1, 3, 2}, {4, 5}}),
                                  hash_of({{1, 2}, {3, 4, 5}}), hash_of({{1, 2, 3}, {}, {4, 5}}),
                                  hash_of({{4, 5}, {1, 2, 3}}), hash_of({{1, 2, 3}, {4, 6}})};
  EXPECT_EQ(hashes.size(), 6u);
  EXPECT_EQ(hash_of({{1, 2, 3}, {4, 5}}), hash_of({{1, 2, 3}, {4, 5}}));
  EXPECT_EQ(hash_of({{1, 2, 3}, {4, 5}}), hash_of({{1, 2, 3}, {4, 5}}, 100'000)) << "two bytes an id or four";
}

TEST(ContentHash, EveryPartCounts) {
  std::vector<TokenId> ids(200'000, 7);
  const uint64_t before = hash_of({ids});
  for (const size_t at : {size_t{0}, size_t{65'535}, size_t{65'536}, size_t{131'072}, ids.size() - 1}) {
    ids[at] = 8;
    EXPECT_NE(hash_of({ids}), before) << at;
    ids[at] = 7;
  }
}

}  // namespace
}  // namespace heddle::data
