// Rows of the table of flags: how a part of a launch is written and read. Two files fill the table, one with what a
// model is and one with how it runs.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "advisor/script/launch_flags.h"

namespace heddle::advisor {

struct Reading {
  const GivenFlags& given;
  Dialect dialect;
  int devices;
  Launch& launch;
  std::vector<std::string>& notes;
};

struct Writing {
  const Launch& launch;
  Dialect dialect;
  std::vector<Flag>& out;
  const char* group;
  void add(std::string name, std::vector<std::string> values = {}) const {
    out.push_back({group, std::move(name), std::move(values)});
  }
};

struct Row {
  const char* group;
  void (*write)(const Writing&);
  void (*read)(const Reading&);
};

inline std::string text_of(int64_t n) { return std::to_string(n); }

// The part of a launch that a member belongs to.
inline model::ModelConfig& owner(Launch& l, const model::ModelConfig*) { return l.job.shape; }
inline model::Foreign& owner(Launch& l, const model::Foreign*) { return l.job.shape.foreign; }
inline plan::Degrees& owner(Launch& l, const plan::Degrees*) { return l.job.mesh; }
inline Software& owner(Launch& l, const Software*) { return l.job.software; }
inline Job& owner(Launch& l, const Job*) { return l.job; }

template <class Owner, class Value>
Value& member(Launch& l, Value Owner::*m) {
  return owner(l, static_cast<const Owner*>(nullptr)).*m;
}
template <class Owner, class Value>
const Value& member(const Launch& l, Value Owner::*m) {
  return member(const_cast<Launch&>(l), m);
}

inline bool moe(const Launch& l) { return l.job.shape.has_experts(); }
inline bool always(const Launch&) { return true; }

// A flag that carries a number. Not written where it equals `usual` or `where` doesn't hold; kNeeded has no usual.
constexpr int64_t kNeeded = -1;
struct Name {
  char text[64] = {};
  constexpr Name(const char* s) {  // NOLINT: a flag's name as template argument
    for (size_t i = 0; s[i] != '\0'; ++i) text[i] = s[i];
  }
};

template <Name name, auto Member, int64_t usual, bool (*where)(const Launch&) = always>
constexpr Row number_row(const char* group) {
  return {group,
          [](const Writing& w) {
            const auto n = static_cast<int64_t>(member(w.launch, Member));
            if (where(w.launch) && n != usual) w.add(name.text, {text_of(n)});
          },
          [](const Reading& r) {
            auto& into = member(r.launch, Member);
            const int64_t n = usual == kNeeded ? r.given.needed(name.text) : r.given.whole(name.text, usual, usual);
            into = static_cast<std::decay_t<decltype(into)>>(n);
          }};
}

// A flag without a value, there when the member has the value `on`.
template <Name name, auto Member, bool on = true, bool (*where)(const Launch&) = always>
constexpr Row switch_row(const char* group) {
  return {group,
          [](const Writing& w) {
            if (where(w.launch) && member(w.launch, Member) == on) w.add(name.text);
          },
          [](const Reading& r) { member(r.launch, Member) = r.given.has(name.text) == on; }};
}

/// Sizes of the model and its training losses' shapes; then degrees, schedule, memory, kernels. Order matters in
/// reading: later rows lean on what earlier ones have read.
const std::vector<Row>& model_rows();
const std::vector<Row>& run_rows();

}  // namespace heddle::advisor
