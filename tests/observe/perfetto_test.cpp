// Traces, read back field by field; and by protoc where it is installed.
#include "heddle/observe/perfetto.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <sstream>

#include "heddle/base/error.h"

namespace heddle::observe {
namespace {

struct Event {
  uint64_t at_ns = 0, track = 0;
  int type = 0;  // 1 begin, 2 end, 4 counter
  std::string name, category;
  std::map<std::string, std::string> arguments;
  int64_t value = 0;
};

struct Trace {
  std::vector<Event> events;
  std::map<uint64_t, std::string> tracks;  // uuid -> name of process, thread or counter
};

// A reader of the few fields that are used, with the interning undone.
Trace read_trace(const std::string& bytes) {
  Trace trace;
  std::map<uint64_t, std::string> categories, names, annotations;
  protozero::pbf_reader file(bytes);
  while (file.next(1)) {
    protozero::pbf_reader packet = file.get_message();
    Event event;
    while (packet.next()) {
      if (packet.tag() == 8) {
        event.at_ns = packet.get_uint64();
      } else if (packet.tag() == 12) {
        protozero::pbf_reader data = packet.get_message();
        while (data.next()) {
          auto& table = data.tag() == 1 ? categories : data.tag() == 2 ? names : annotations;
          protozero::pbf_reader entry = data.get_message();
          uint64_t iid = 0;
          while (entry.next()) {
            if (entry.tag() == 1)
              iid = entry.get_uint64();
            else
              table[iid] = entry.get_string();
          }
        }
      } else if (packet.tag() == 60) {
        protozero::pbf_reader track = packet.get_message();
        uint64_t uuid = 0;
        while (track.next()) {
          if (track.tag() == 1) {
            uuid = track.get_uint64();
          } else if (track.tag() == 2) {
            trace.tracks[uuid] = track.get_string();
          } else if (track.tag() == 3 || track.tag() == 4) {
            const uint32_t name_field = track.tag() == 3 ? 6 : 5;
            protozero::pbf_reader descriptor = track.get_message();
            while (descriptor.next()) {
              if (descriptor.tag() == name_field)
                trace.tracks[uuid] = descriptor.get_string();
              else
                descriptor.skip();
            }
          } else {
            track.skip();
          }
        }
      } else if (packet.tag() == 11) {
        protozero::pbf_reader body = packet.get_message();
        while (body.next()) {
          switch (body.tag()) {
            case 3: event.category = categories.at(body.get_uint64()); break;
            case 9: event.type = body.get_enum(); break;
            case 10: event.name = names.at(body.get_uint64()); break;
            case 11: event.track = body.get_uint64(); break;
            case 30: event.value = body.get_int64(); break;
            case 4: {
              protozero::pbf_reader annotation = body.get_message();
              std::string key;
              while (annotation.next()) {
                if (annotation.tag() == 1)
                  key = annotations.at(annotation.get_uint64());
                else if (annotation.tag() == 4)
                  event.arguments[key] = std::to_string(annotation.get_int64());
                else
                  event.arguments[key] = annotation.get_string();
              }
              break;
            }
            default: body.skip();
          }
        }
        trace.events.push_back(event);
      } else {
        packet.skip();
      }
    }
  }
  return trace;
}

class PerfettoTest : public ::testing::Test {
 protected:
  std::string path_ = (std::filesystem::temp_directory_path() /
                       fmt::format("heddle-trace-{}-{}.pftrace", ::getpid(),
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                          .string();
  void TearDown() override { std::filesystem::remove(path_); }
  std::string bytes() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
};

Timeline small_timeline() {
  Timeline timeline;
  const uint32_t compute = timeline.track(0, "compute"), comm = timeline.track(0, "comm.ep");
  const uint32_t other = timeline.track(1, "compute");
  timeline.spans = {
      {timeline.intern("moe.1 exchange"), timeline.intern("exchange"), comm, 5, 9.5, SpanPhase::F, 0, 3, 1, 7},
      {timeline.intern("linear"), timeline.intern("linear"), compute, 0, 5, SpanPhase::F, 0, 3, 1, 7},
      {timeline.intern("linear"), timeline.intern("linear"), compute, 5, 8, SpanPhase::W, 0, 2, -1, 7},
      {timeline.intern("update"), timeline.intern("adamw"), other, 2, 4, SpanPhase::end, -1, -1, -1, 7},
  };
  timeline.arena = {{0, 1, 100, 200}, {0, 2, 50, 200}};
  return timeline;
}

TEST_F(PerfettoTest, SlicesCarryWhatTheSpansSay) {
  {
    PerfettoTrace trace(path_);
    trace.add(small_timeline());
  }
  const Trace trace = read_trace(bytes());
  std::vector<std::string> said;
  for (const Event& event : trace.events) {
    std::string arguments;
    for (const auto& [key, value] : event.arguments) arguments += fmt::format(" {}={}", key, value);
    said.push_back(fmt::format("{} {} {} {}[{}]{} {}", event.at_ns, trace.tracks.at(event.track), event.type,
                               event.name, event.category, arguments, event.value));
  }
  EXPECT_EQ(said, (std::vector<std::string>{
                      "0 compute 1 linear[F] kind=linear layer=1 microbatch=3 stage=0 step=7 0",
                      "5000 compute 2 [] 0",
                      "5000 compute 1 linear[W] kind=linear microbatch=2 stage=0 step=7 0",
                      "8000 compute 2 [] 0",
                      "5000 comm.ep 1 moe.1 exchange[F] kind=exchange layer=1 microbatch=3 stage=0 step=7 0",
                      "9500 comm.ep 2 [] 0",
                      "2000 compute 1 update[end] kind=adamw step=7 0",
                      "4000 compute 2 [] 0",
                      "1000 arena live 4 [] 100",
                      "1000 arena reserved 4 [] 200",
                      "2000 arena live 4 [] 50",
                      "2000 arena reserved 4 [] 200",
                  }));
}

TEST_F(PerfettoTest, SlicesAlwaysNest) {
  Timeline timeline;
  const uint32_t name = timeline.intern("x"), track = timeline.track(0, "compute");
  const auto span = [&](double start_us, double end_us) {
    timeline.spans.push_back({name, name, track, start_us, end_us});
  };
  span(0, 10);
  span(0, 4);    // inside, though it comes later
  span(3, 6);    // crosses the end of the one before
  span(10, 10);  // empty
  {
    PerfettoTrace trace(path_);
    trace.add(timeline);
    trace.add(timeline, 100);
  }
  int depth = 0;
  uint64_t before_ns = 0;
  for (const Event& event : read_trace(bytes()).events) {
    depth += event.type == 1 ? 1 : -1;
    EXPECT_GE(depth, 0);
    EXPECT_GE(event.at_ns, before_ns);
    before_ns = event.at_ns;
  }
  EXPECT_EQ(depth, 0);
  EXPECT_EQ(before_ns, 110'000u);
}

TEST_F(PerfettoTest, ManyStepsKeepTheBufferSmall) {
  PerfettoTrace trace(path_);
  Timeline timeline = small_timeline();
  const std::vector<Span> spans = timeline.spans;
  for (int i = 1; i < 100; ++i) {
    for (Span span : spans) {
      span.start_us += i * 10;
      span.end_us += i * 10;
      timeline.spans.push_back(span);
    }
  }
  int64_t added = 0;
  for (int step = 0; step < 200; ++step) {
    trace.add(timeline, step * 1000.0);
    added += static_cast<int64_t>(timeline.spans.size());
  }
  EXPECT_GT(std::filesystem::file_size(path_), 1u << 20) << "written out while going on";
  trace.close();
  int64_t begun = 0;
  for (const Event& event : read_trace(bytes()).events) begun += event.type == 1;
  EXPECT_EQ(begun, added);
}

TEST_F(PerfettoTest, BrokenTimelinesAreRefused) {
  PerfettoTrace trace(path_);
  for (int broken = 0; broken < 4; ++broken) {
    Timeline timeline = small_timeline();
    Span& span = timeline.spans[1];
    if (broken == 0) span.track = 9;
    if (broken == 1) span.kind = 1000;
    if (broken == 2) span.end_us = -1;
    if (broken == 3) span.start_us = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW(trace.add(timeline), InternalError) << broken;
  }
  EXPECT_THROW(PerfettoTrace("/nowhere/trace"), SystemError);
}

TEST_F(PerfettoTest, ProtocDecodesIt) {
  if (std::system("protoc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no protoc here";
  {
    PerfettoTrace trace(path_);
    trace.add(small_timeline());
  }
  const std::string command = "protoc --decode_raw < " + path_ + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> chunk{};
  for (size_t count; (count = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    text.append(chunk.data(), count);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  EXPECT_NE(text.find("rank 0"), std::string::npos);
  EXPECT_NE(text.find("moe.1 exchange"), std::string::npos);
}

TEST(TimelineNames, CopiesStandOnTheirOwn) {
  Timeline copy;
  {
    Timeline first = small_timeline();
    copy = first;
    first.intern("only in the first");
  }
  const size_t before = copy.name_count();
  EXPECT_EQ(copy.name(copy.intern("linear")), "linear");
  EXPECT_EQ(copy.name_count(), before);
  EXPECT_EQ(copy.name(copy.intern("new")), "new");
  EXPECT_EQ(copy.track(1, "compute"), 2u);
}

}  // namespace
}  // namespace heddle::observe
