// JSON's library without its literal (`"[1]"_json`), which nothing here uses: its definition makes every file that
// reads the library compile the whole parser. For precompiled headers, which come before the library's own include.
#pragma once

#define JSON_USE_GLOBAL_UDLS 0
#define _json(...)       \
  _never(__VA_ARGS__);   \
  template <class Never> \
  nlohmann::json never_parsed(__VA_ARGS__)
#include <nlohmann/json.hpp>
#undef _json
