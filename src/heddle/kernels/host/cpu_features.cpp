// CPUID says what the silicon has, XCR0 what state the operating system saves, and on Linux the large tile state
// needs a permission besides (arch_prctl, Documentation/arch/x86/xstate.rst).
#include "heddle/kernels/host/cpu_features.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace heddle::kernels::host {

namespace {

// A feature that may be taken as absent, and Highway's instruction sets that need it: a better set has a lower bit.
struct Maskable {
  std::string_view name;
  int64_t highway = 0;
};
#if defined(__x86_64__)
constexpr int64_t kAboveAvx2 = HWY_AVX2 - 1;
#else
constexpr int64_t kAboveAvx2 = 0;
#endif
constexpr std::array kMaskable = {Maskable{"amx"}, Maskable{"avx512_bf16"}, Maskable{"avx512", kAboveAvx2},
                                  Maskable{"avx2", kAboveAvx2 != 0 ? kAboveAvx2 | HWY_AVX2 : 0},
                                  Maskable{"neon_bf16"}};
constexpr const char* kVariable = "HEDDLE_CPU_WITHOUT";

std::vector<std::string_view> read_mask() {
  std::vector<std::string_view> masked;
  const char* text = std::getenv(kVariable);
  for (std::string_view left = text == nullptr ? "" : text; !left.empty();) {
    const size_t comma = std::min(left.find(','), left.size());
    const std::string_view name = left.substr(0, comma);
    left.remove_prefix(std::min(comma + 1, left.size()));
    if (std::none_of(kMaskable.begin(), kMaskable.end(), [&](const Maskable& m) { return m.name == name; })) {
      config_error("{}: '{}' is none of amx, avx512_bf16, avx512, avx2, neon_bf16", kVariable, name);
    }
    masked.push_back(name);
  }
  return masked;
}

}  // namespace

const std::vector<std::string_view>& masked_features() {
  static const std::vector<std::string_view> masked = read_mask();
  return masked;
}

void mask_highway() {
  int64_t without = 0;
  for (const Maskable& feature : kMaskable) {
    if (std::ranges::count(masked_features(), feature.name) > 0) without |= feature.highway;
  }
  if (without == 0) return;
  hwy::DisableTargets(without);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

namespace {
Support unless_masked(std::string_view name, Support (*find)()) {
  if (std::ranges::count(masked_features(), name) == 0) return find();
  return Support::no(fmt::format("{} is masked by {}", name, kVariable));
}

Support find_neon_bf16() {
#if defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & kBf16) != 0 ? Support::yes() : Support::no("the processor lacks bf16 products");
#else
  return Support::no("not an aarch64 processor");
#endif
}
}  // namespace

const Support& neon_bf16() {
  static const Support found = unless_masked("neon_bf16", find_neon_bf16);
  return found;
}

#if defined(__x86_64__)
namespace {

struct Leaves {
  uint32_t ecx_1 = 0, ebx_7 = 0, edx_7 = 0, eax_7_1 = 0;
  uint64_t saved_state = 0;  // XCR0
};

Leaves read_leaves() {
  Leaves leaves;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) leaves.ecx_1 = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    leaves.ebx_7 = b;
    leaves.edx_7 = d;
    const uint32_t last_subleaf = a;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaves.eax_7_1 = a;
  }
  constexpr uint32_t kOsxsave = 1u << 27;
  if (leaves.ecx_1 & kOsxsave) {
    uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    leaves.saved_state = (static_cast<uint64_t>(high) << 32) | low;
  }
  return leaves;
}

const Leaves& leaves() {
  static const Leaves found = read_leaves();
  return found;
}

bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }
bool saves(uint64_t bits) { return (leaves().saved_state & bits) == bits; }

constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xe6, kTileState = 0x60000;

Support find_avx2_fma() {
  constexpr uint32_t kFma = 1u << 12, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr uint32_t kAvx2 = 1u << 5, kBmi2 = 1u << 8;
  if (!has(leaves().ecx_1, kFma | kAvx | kF16c) || !has(leaves().ebx_7, kAvx2 | kBmi2)) {
    return Support::no("the processor lacks AVX2 or FMA");
  }
  if (!saves(kAvxState)) return Support::no("the operating system does not save AVX state");
  return Support::yes();
}

Support find_avx512() {
  if (!avx2_fma()) return avx2_fma();
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kCd = 1u << 28, kBw = 1u << 30, kVl = 1u << 31;
  if (!has(leaves().ebx_7, kF | kDq | kCd | kBw | kVl)) {
    return Support::no("the processor lacks AVX-512 F, BW, DQ, VL or CD");
  }
  if (!saves(kAvx512State)) return Support::no("the operating system does not save AVX-512 state");
  return Support::yes();
}

Support find_avx512_bf16() {
  if (!avx512()) return avx512();
  if (!has(leaves().eax_7_1, 1u << 5)) return Support::no("the processor lacks AVX512_BF16");
  return Support::yes();
}

Support find_amx_bf16() {
  if (!avx512_bf16()) return avx512_bf16();
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (!has(leaves().edx_7, kAmxBf16 | kAmxTile)) return Support::no("the processor lacks AMX-TILE or AMX-BF16");
  if (!saves(kTileState)) return Support::no("the operating system does not save AMX tile state");
  // Our kernels use the whole of palette 1: 8 tiles of 16 rows × 64 bytes.
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) || (b >> 16) < 8 || (b & 0xffff) < 64 || (c & 0xffff) < 16) {
    return Support::no("AMX palette 1 is smaller than 8 tiles of 16 rows of 64 bytes");
  }
  constexpr long kRequestPermission = 0x1023, kTileDataState = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileDataState) != 0) {
    return Support::no("the kernel refuses permission to use AMX tile data (arch_prctl ARCH_REQ_XCOMP_PERM)");
  }
  return Support::yes();
}

}  // namespace

const Support& avx2_fma() {
  static const Support found = unless_masked("avx2", find_avx2_fma);
  return found;
}
const Support& avx512() {
  static const Support found = unless_masked("avx512", find_avx512);
  return found;
}
const Support& avx512_bf16() {
  static const Support found = unless_masked("avx512_bf16", find_avx512_bf16);
  return found;
}
const Support& amx_bf16() {
  static const Support found = unless_masked("amx", find_amx_bf16);
  return found;
}

#else

namespace {
const Support kOtherArchitecture = Support::no("not an x86-64 processor");
}
const Support& avx2_fma() { return kOtherArchitecture; }
const Support& avx512() { return kOtherArchitecture; }
const Support& avx512_bf16() { return kOtherArchitecture; }
const Support& amx_bf16() { return kOtherArchitecture; }

#endif

std::vector<std::pair<std::string, Support>> processor_features() {
#if defined(__aarch64__)
  return {{"NEON bf16", neon_bf16()}};
#else
  return {{"AVX2 and FMA", avx2_fma()},
          {"AVX-512", avx512()},
          {"AVX-512 bf16", avx512_bf16()},
          {"AMX bf16", amx_bf16()}};
#endif
}

std::string highway_text() {
  std::string sets;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {  // a better set has a lower bit
    sets += fmt::format("{}{}", sets.empty() ? "" : ", ", hwy::TargetName(left & -left));
  }
  return fmt::format("{}.{}: {}", HWY_MAJOR, HWY_MINOR, sets);
}

}  // namespace heddle::kernels::host
