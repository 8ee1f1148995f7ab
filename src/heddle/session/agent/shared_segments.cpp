#include "heddle/session/agent/shared_segments.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/session/agent/run_memory.h"

namespace heddle::session {

namespace {

using nlohmann::json;

constexpr char kAsk = 'A', kSegment = 'L', kVerify = 'V', kRead = 'R', kSegmentBytes = 'B', kSegmentDone = 'K',
               kSegmentRefused = 'N';
constexpr double kReaderPatience_s = 60;  // time for an agent that reads all bytes of a set
constexpr int64_t kMostToken = 4096;

struct Place {
  int64_t number = 0, at = 0, count = 0;  // 'V': number and set
};
std::string place_text(const Place& place) { return {reinterpret_cast<const char*>(&place), sizeof place}; }

class Borrowed : public train::SegmentOwner {
 public:
  Borrowed(std::shared_ptr<Link> link, std::string from, int64_t number)
      : link_(std::move(link)), from_(std::move(from)), number_(number) {}

  void read(int64_t at, std::span<uint8_t> into) override {
    link_->send(kRead, place_text({number_, at, std::ssize(into)}));
    const Link::Frame answer = await();
    if (answer.kind != kSegmentBytes || answer.bytes.size() != into.size())
      throw SystemError(EIO, fmt::format("{} shares its memory no longer: {}", from_, refusal(answer)));
    std::memcpy(into.data(), answer.bytes.data(), into.size());
  }

  void verify(int set) override {
    link_->send(kVerify, place_text({number_, set, 0}));
    if (const Link::Frame answer = await(); answer.kind != kSegmentDone)
      config_error("{}: {}", from_, refusal(answer));
  }

 private:
  Link::Frame await() {
    std::optional<Link::Frame> answer = link_->receive(kReaderPatience_s);
    if (!answer) throw SystemError(ETIMEDOUT, fmt::format("{} says nothing", from_));
    return std::move(*answer);
  }
  static std::string refusal(const Link::Frame& answer) {
    return answer.kind == kSegmentRefused ? escaped(answer.bytes, 300) : "the answer to another question";
  }

  std::shared_ptr<Link> link_;
  std::string from_;
  int64_t number_;
};

}  // namespace

bool SegmentServer::is_asked(const Link::Frame& frame) {
  return frame.kind == kAsk || frame.kind == kVerify || frame.kind == kRead;
}

void SegmentServer::answer(Link& link, const Link::Frame& frame) {
  std::string refused;
  try {
    refused = answered(link, frame);
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    refused = error.what();
  }
  if (!refused.empty()) link.send(kSegmentRefused, refused);
}

std::string SegmentServer::answered(Link& link, const Link::Frame& frame) {
  if (frame.kind == kAsk) {
    remote_.clear();
    for (const std::string& folder : folders_) {
      for (const train::SegmentFiles& files : train::segments_in(folder)) {
        try {
          const auto segment = std::make_shared<const train::Segment>(files);
          const train::SharedSegment said = segment->description();
          link.send(kSegment, json{{"name", files.name},
                                   {"partner", folder.ends_with(train::kPartnerFolder)},
                                   {"index", said.index},
                                   {"seals", said.seals},
                                   {"sums", said.sums}}
                                  .dump());
          remote_.push_back(segment);
        } catch (const ConfigError&) {  // not finished, or not whole
        }
      }
    }
    link.send(kSegmentDone, "");
    return "";
  }
  Place place;
  if (frame.bytes.size() != sizeof place) return "cut";
  std::memcpy(&place, frame.bytes.data(), sizeof place);
  if (place.number < 0 || place.number >= std::ssize(remote_)) return "no such segment";
  const train::Segment& segment = *remote_[place.number];
  if (frame.kind == kVerify) {
    if (place.at < 0 || place.at >= train::kSets || !segment.seal(static_cast<int>(place.at))) return "no such set";
    segment.verify(static_cast<int>(place.at));
    link.send(kSegmentDone, "");
    return "";
  }
  const int64_t bytes = segment.index().bytes;
  if (place.count < 0 || place.count > static_cast<int64_t>(kChunkBytes) || place.at < 0 ||
      place.at > bytes - place.count)
    return "beyond the segment";
  link.send(kSegmentBytes,
            {reinterpret_cast<const char*>(segment.data() + place.at), static_cast<size_t>(place.count)});
  return "";
}

std::vector<std::shared_ptr<const train::Segment>> shared_segments(const RunFolder& folder,
                                                                   std::vector<std::string>* refused) {
  const std::vector<AgentEntry> entries = agent_entries(folder);
  std::string token;
  for (const AgentEntry& entry : entries) {
    std::error_code ignored;
    const std::string path = entry.folder + kAgentToken;
    if (token.empty() && is_memory_here(entry.folder) && std::filesystem::exists(path, ignored))
      token = read_file(path, kMostToken);
  }
  std::vector<std::shared_ptr<const train::Segment>> of_ranks, of_partners;
  for (const AgentEntry& entry : entries) {
    if (token.empty() || entry.address.empty() || is_memory_here(entry.folder)) continue;
    try {
      const auto link = std::make_shared<Link>(Link::to(entry.address, token));
      link->send(kAsk, "");
      for (int64_t number = 0;; ++number) {
        const std::optional<Link::Frame> frame = link->receive(kReaderPatience_s);
        if (!frame) throw SystemError(ETIMEDOUT, fmt::format("the agent at {} does not answer", entry.address));
        if (frame->kind != kSegment) break;
        const json said = json::parse(frame->bytes);
        const bool partner = said.at("partner").get<bool>();
        const std::string from = fmt::format("the memory of {}{}", entry.address, partner ? " (of a partner)" : "");
        train::SharedSegment remote{said.at("index").get<std::string>(), {}, {}};
        said.at("seals").get_to(remote.seals);
        said.at("sums").get_to(remote.sums);
        auto segment = std::make_shared<const train::Segment>(
            train::SegmentFiles{from, formats::printable(said.at("name").get<std::string>())}, std::move(remote),
            std::make_shared<Borrowed>(link, from, number));
        (partner ? of_partners : of_ranks).push_back(std::move(segment));
      }
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      if (refused != nullptr) refused->emplace_back(error.what());
    } catch (const json::exception&) {
      if (refused != nullptr)
        refused->push_back(fmt::format("the agent at {} gives no usable answer", entry.address));
    }
  }
  of_ranks.insert(of_ranks.end(), of_partners.begin(), of_partners.end());
  return of_ranks;
}

}  // namespace heddle::session
