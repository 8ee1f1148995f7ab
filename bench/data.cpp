// How fast `heddle data` makes token files, on one core, of each form of file; and what takes the time.
//
//   bench_data [FILE.txt] [--mib N] [--text english|chinese|code|mixed] [--json]
//
// A text of bench/support/texts.h, the mixed one unless told (FILE.txt stands for the prose), as .txt and .jsonl,
// packed by gzip and by zstd too. Processor time of the whole process, one thread: of all of `heddle data` with a
// tokenizer that is there; of reading alone, documents out of the file; of reading and tokenizing; what is left is
// writing, with the hashes and counts of each document. MB/s are of text, unpacked and out of its JSON. Least of
// three rounds.
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/support/core_time.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "bench/support/texts.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/corpus/text_files.h"
#include "heddle/data/encode_documents.h"
#include "heddle/data/prepare_data.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::bench {
namespace {

using namespace data;
namespace fs = std::filesystem;

constexpr int kRounds = 3;
constexpr int64_t kVocabulary = 32000;

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  if (::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) config_error("no zlib");
  std::string packed(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ::deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  return packed;
}

template <class Work>
double least_seconds(const Work& work) {
  int64_t least_ns = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = core_ns(CLOCK_PROCESS_CPUTIME_ID);
    work(round);
    least_ns = std::min(least_ns, core_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns);
  }
  return static_cast<double>(least_ns) * 1e-9;
}

struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("bench_data.{}", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace
}  // namespace heddle::bench

int heddle::bench::run(Arguments& arguments) {
  std::string prose, kind = "mixed";
  int mib = 32;
  bool json = false;
  arguments.place("FILE.txt", prose);
  arguments.number("--mib", mib);
  arguments.word("--text", "KIND", kind, {"english", "chinese", "code", "mixed"});
  arguments.flag("--json", json);
  arguments.read();
  const Folder folder;
  std::string plain, lines;
  {
    const std::vector<Text> texts = make_texts(int64_t{mib} << 20, prose);
    WordCounts words;
    int64_t number = 0;
    const auto text = std::find_if(texts.begin(), texts.end(), [&](const Text& t) { return t.kind == kind; });
    for (const std::string& document : text->documents) {
      if (plain.size() < size_t{8} << 20) words.add(document);
      plain += document + "\n\n";
      lines += nlohmann::json{{"id", number++}, {"text", document}}.dump(-1, ' ', false,
                                                                         nlohmann::json::error_handler_t::replace) +
               "\n";
    }
    write_tokenizer((folder.path / "tokenizer.json").string(), train_tokenizer(words, kVocabulary));
  }
  const std::pair<std::string, std::string> files[] = {
      {"text.txt", plain},           {"text.jsonl", lines},
      {"text.txt.gz", gzip(plain)},  {"text.jsonl.gz", gzip(lines)},
      {"text.txt.zst", zstd(plain)}, {"text.jsonl.zst", zstd(lines)}};
  const Tokenizer tokenizer(read_tokenizer((folder.path / "tokenizer.json").string()));
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  if (!json) fmt::print("{:16} {:>8} {:>10} {:>10} {:>10}\n", "file", "MB/s", "reading", "tokenizer", "the rest");
  for (const auto& [name, bytes] : files) {
    const std::string path = (folder.path / name).string();
    write_file(path, bytes);
    const auto source = [&] { return open_text(path, {.bytes = Bytes::any}); };
    int64_t text_bytes = 0;
    const double reading = least_seconds([&](int) {
      Document document;
      text_bytes = 0;
      for (const auto from = source(); from->next(document);)
        text_bytes += static_cast<int64_t>(document.text.size());
    });
    const double encoding =
        least_seconds([&](int) { encode_documents(*source(), tokenizer, 1, [](const EncodedDocument&) {}); });
    const double all = least_seconds([&](int round) {
      const fs::path made = folder.path / fmt::format("{}.{}", name, round);
      fs::create_directories(made);
      fs::copy_file(folder.path / "tokenizer.json", made / "tokenizer.json");
      prepare_text_data(path, made.string(), tokenizer.vocabulary(), {}, {.bytes = Bytes::any}, 1);
      fs::remove_all(made);
    });
    const double rate = static_cast<double>(text_bytes) / all * 1e-6;
    found.push_back({{"file", name},
                     {"text", kind},
                     {"mb_per_s", rate},
                     {"reading_share", reading / all},
                     {"tokenizer_share", (encoding - reading) / all},
                     {"rest_share", (all - encoding) / all}});
    if (json) bench::so_far(found.dump());
    if (!json) {
      fmt::print("{:16} {:8.1f} {:9.0f}% {:9.0f}% {:9.0f}%\n", name, rate, 100 * reading / all,
                 100 * (encoding - reading) / all, 100 * (all - encoding) / all);
    }
    fs::remove(path);
  }
  if (json) fmt::print("{}\n", found.dump());
  return 0;
}
