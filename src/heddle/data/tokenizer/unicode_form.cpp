#include "heddle/data/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <bitset>
#include <cstdlib>
#include <memory>

#include "heddle/base/error.h"
#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
using Bits = std::bitset<kCodePoints>;

constexpr int options_of(UnicodeForm form) {
  const bool composed = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  return UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
}

void append_form(UnicodeForm form, std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made,
                                 static_cast<utf8proc_option_t>(options_of(form)));
  if (size < 0) config_error("text can't be normalized: {}", utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, std::free);
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
}

// Characters that the form leaves as they are, whatever stands beside them.
Bits inert_in(UnicodeForm form) {
  Bits inert;
  std::string one, made;
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
    const bool joins_before = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
    const bool jamo = (code >= 0x1161 && code <= 0x1175) || (code >= 0x11a8 && code <= 0x11c2);
    if (property->combining_class != 0 || joins_before || jamo) continue;
    const bool hangul = code >= 0xac00 && code <= 0xd7a3;
    if (property->decomp_seqindex != UINT16_MAX || hangul) {
      one.clear();
      made.clear();
      append_utf8(one, code);
      append_form(form, one, made);
      if (made != one) continue;
    }
    inert.set(code);
  }
  return inert;
}

const Bits& inert(UnicodeForm form) {
  const auto of = [](UnicodeForm which) { return std::make_unique<const Bits>(inert_in(which)); };
  switch (form) {
    case UnicodeForm::nfc: {
      static const auto bits = of(form);
      return *bits;
    }
    case UnicodeForm::nfd: {
      static const auto bits = of(form);
      return *bits;
    }
    case UnicodeForm::nfkc: {
      static const auto bits = of(form);
      return *bits;
    }
    case UnicodeForm::nfkd: break;
  }
  static const auto bits = of(UnicodeForm::nfkd);
  return *bits;
}

}  // namespace

std::string_view in_form(UnicodeForm form, std::string_view text, std::string& held) {
  const Bits& still = inert(form);
  held.clear();
  size_t copied = 0, before = 0;  // `before`: where the last inert character begins
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (static_cast<uint8_t>(text[at]) < 0x80) {  // ASCII is inert in every form
      before = at++;
      continue;
    }
    if (still[next_code_point(text, at)]) {
      before = here;
      continue;
    }
    while (at < text.size()) {
      const size_t next = at;
      if (still[next_code_point(text, at)]) {
        at = next;
        break;
      }
    }
    held.append(text.substr(copied, before - copied));
    append_form(form, text.substr(before, at - before), held);
    copied = before = at;
  }
  if (copied == 0) return text;
  held.append(text.substr(copied));
  return held;
}

}  // namespace heddle::data
