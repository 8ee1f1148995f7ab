#include "heddle/cost/accelerator.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "heddle/base/text.h"

namespace heddle::cost {

namespace {

constexpr double T = 1e12, G = 1e9, GiB = 1024.0 * 1024 * 1024;

std::vector<Accelerator> make_accelerators() {
  // NVLink 3/4/5: 300/450/900 GB/s a direction (NVIDIA A100, H100 and Blackwell architecture papers). DGX nodes
  // have a NIC a GPU: 200 Gbit/s (DGX A100), 400 Gbit/s (DGX H100, B200), 800 Gbit/s (ConnectX-8 of GB300, B300).
  const Tier nvlink3{8, 300 * G, 6}, nvlink4{8, 450 * G, 6}, nvlink5{8, 900 * G, 6}, nvl72{72, 900 * G, 6};
  const Tier hdr{0, 25 * G, 12}, ndr{0, 50 * G, 12}, xdr{0, 100 * G, 12};
  const Tier hccs{8, 196 * G, 10, Wiring::full}, xgmi{8, 448 * G, 10, Wiring::full},
      xgmi4{8, 537.6 * G, 10, Wiring::full};
  // clang-format off
  std::vector<Accelerator> all = {
      // A100 datasheet 2021: 312 TFLOP/s BF16; HBM2 1,555 GB/s (40 GB), HBM2e 2,039 GB/s (80 GB); 108 SMs.
      {"A100-40", Family::ampere, 312 * T, 0, 0, 40 * GiB, 1555 * G, 108, 9, nvlink3, hdr},
      {"A100-80", Family::ampere, 312 * T, 0, 0, 80 * GiB, 2039 * G, 108, 9, nvlink3, hdr},
      // H100 SXM datasheet: 989 BF16, 1,979 FP8; 3,350 GB/s; 132 SMs.
      {"H100", Family::hopper, 989 * T, 1979 * T, 0, 80 * GiB, 3350 * G, 132, 8, nvlink4, ndr},
      // Grand Teton of torchtitan's reports: 96 GB of HBM2e at 2,400 GB/s, capped at 500 W: its matrix peak there
      // is
      // three quarters of the 700 W part's.
      {"H100-500W", Family::hopper, 740 * T, 1480 * T, 0, 96 * GiB, 2400 * G, 132, 8, nvlink4, ndr},
      // DeepSeek-V3 report (arXiv 2412.19437): H800 as H100 with NVLink cut to 160 GB/s measured, 400 Gbit/s IB.
      {"H800", Family::hopper, 989 * T, 1979 * T, 0, 80 * GiB, 3350 * G, 132, 8, {8, 200 * G, 6}, ndr},
      // H200 datasheet: H100's units with 141 GB at 4,800 GB/s. H20: 148 BF16, 296 FP8, 4,000 GB/s, 78 SMs.
      {"H200", Family::hopper, 989 * T, 1979 * T, 0, 141 * G, 4800 * G, 132, 8, nvlink4, ndr},
      {"H20", Family::hopper, 148 * T, 296 * T, 0, 96 * GiB, 4000 * G, 78, 8, nvlink4, ndr},
      // Blackwell datasheets: HGX B200 2,250 / 4,500 / 9,000, 180 GB, 7.7 TB/s; GB200 2,500 / 5,000 / 10,000, 186
      // GB,
      // 8 TB/s; B300 and GB300 the same 8-bit rates, 15,000 FP4 at 288 GB. 148 SMs (152 of GB300 are not all
      // there).
      {"B200", Family::blackwell, 2250 * T, 4500 * T, 9000 * T, 180 * G, 7700 * G, 148, 8, nvlink5, ndr},
      {"B300", Family::blackwell, 2250 * T, 4500 * T, 13500 * T, 270 * G, 7700 * G, 148, 8, nvlink5, xdr},
      {"GB200", Family::blackwell, 2500 * T, 5000 * T, 10000 * T, 186 * G, 8000 * G, 148, 11, nvl72, ndr},
      {"GB300", Family::blackwell, 2500 * T, 5000 * T, 15000 * T, 279 * G, 8000 * G, 148, 11, nvl72, xdr},
      // Ascend boards by their cube units alone, 8,192 FLOP a cycle each; "376T" adds the vector units. 910B1: 25
      // cores of 1.85 GHz, B2: 24 of 1.8, B3: 20 of 1.8, B4: 20 of 1.6. 64 GB at 1.6 TB/s (B4: 32 at 0.8). Every pair
      // of a node's eight has an HCCS link of 28 GB/s a direction; 200 Gbit/s RoCE (Atlas 800T A2 and 900 A2 sheets).
      // 910B without a number is a B2. 910A: 256 FP16, two rings of four, 100 Gbit/s.
      {"Ascend-910A", Family::ascend, 256 * T, 0, 0, 32 * GiB, 1200 * G, 32, 12, {8, 90 * G, 10}, {0, 12.5 * G, 15}},
      {"Ascend-910B", Family::ascend, 353.9 * T, 0, 0, 64 * GiB, 1600 * G, 24, 12, hccs, hdr},
      {"Ascend-910B1", Family::ascend, 378.9 * T, 0, 0, 64 * GiB, 1600 * G, 25, 12, hccs, hdr},
      {"Ascend-910B3", Family::ascend, 294.9 * T, 0, 0, 64 * GiB, 1600 * G, 20, 12, hccs, hdr},
      {"Ascend-910B4", Family::ascend, 262.1 * T, 0, 0, 32 * GiB, 800 * G, 20, 12, hccs, hdr},
      // 910C: a package of two dies, each a device to its software; CloudMatrix384 (arXiv 2506.12708): 196 GB/s a
      // direction and die, switched, among 384 packages.
      {"Ascend-910C", Family::ascend, 353.9 * T, 0, 0, 64 * GiB, 1600 * G, 24, 12, {768, 196 * G, 10}, hdr},
      // MetaX C500 product page: 280 TFLOP/s BF16, 64 GB at 1.8 TB/s, MetaXLink among 8.
      {"C500", Family::other, 280 * T, 0, 0, 64 * GiB, 1800 * G, 104, 10, {8, 112 * G, 8}, hdr},
      // AMD data sheets: MI300X 1,307 / 2,615, 192 GB at 5.3 TB/s, seven links of 64 GB/s; MI325X the same with 256
      // GB at 6 TB/s; MI350X 2,307 / 4,614, MI355X 2,500 / 5,000 / 10,000, both 288 GB at 8 TB/s, links of 76.8 GB/s.
      {"MI300X", Family::cdna3, 1307 * T, 2615 * T, 0, 192 * G, 5300 * G, 304, 13, xgmi, ndr},
      {"MI325X", Family::cdna3, 1307 * T, 2615 * T, 0, 256 * G, 6000 * G, 304, 13, xgmi, ndr},
      {"MI350X", Family::cdna3, 2307 * T, 4614 * T, 9228 * T, 288 * G, 8000 * G, 256, 13, xgmi4, ndr},
      {"MI355X", Family::cdna3, 2500 * T, 5000 * T, 10000 * T, 288 * G, 8000 * G, 256, 13, xgmi4, ndr},
      // Intel Gaudi papers (Hot Chips 2024): 432 / 865, 96 GB at 2.46 TB/s; Gaudi 3 as shipped, at 1.6 GHz, 1,677,
      // 128 GB at 3.67 TB/s. Of 24 Ethernet ports (100, 200 Gbit/s) three go to each of seven peers, three out.
      {"Gaudi2", Family::gaudi, 432 * T, 865 * T, 0, 96 * GiB, 2460 * G, 2, 6,
       {8, 262.5 * G, 10, Wiring::full}, {0, 37.5 * G, 15}},
      {"Gaudi3", Family::gaudi, 1677 * T, 1677 * T, 0, 128 * GiB, 3670 * G, 8, 6,
       {8, 525 * G, 10, Wiring::full}, {0, 75 * G, 15}},
      // Google's pages: TPU v4 275, 32 GB at 1.2 TB/s, six links of 50 GB/s a direction; v5e 197 (int8 393), 16 GB at
      // 0.82, four; v5p 459 (918), 95 GB at 2.77, six of 100; v6e 918 (1,836), 32 GB at 1.64, four of 100. A slice's
      // tori carry rings on all links at once. Between slices a host's 200 Gbit/s, of four chips or (v5e, v6e) eight.
      {"TPU-v4", Family::tpu, 275 * T, 0, 0, 32 * GiB, 1200 * G, 8, 0, {4096, 300 * G, 5}, {0, 6.25 * G, 30}},
      {"TPU-v5e", Family::tpu, 197 * T, 393 * T, 0, 16 * GiB, 819 * G, 4, 0, {256, 200 * G, 5}, {0, 3.125 * G, 30}},
      {"TPU-v5p", Family::tpu, 459 * T, 918 * T, 0, 95 * GiB, 2765 * G, 8, 0, {8960, 600 * G, 5}, {0, 6.25 * G, 30}},
      {"TPU-v6e", Family::tpu, 918 * T, 1836 * T, 0, 32 * GiB, 1638 * G, 4, 0, {256, 400 * G, 5}, {0, 6.25 * G, 30}},
  };
  // clang-format on
  // PCIe 5.0 x16 from Hopper and CDNA 3 on; Grace and Blackwell are joined by NVLink-C2C, 450 GB/s a direction.
  for (Accelerator& a : all) {
    if (a.family == Family::hopper || a.family == Family::blackwell || a.family == Family::cdna3)
      a.host_bytes_per_s = 64 * G;
    if (a.name.starts_with("GB")) a.host_bytes_per_s = 450 * G;
  }
  // Memory of the usual host, of one device of eight, and its channels' rate. NVIDIA's user guides: DGX A100 640 GB
  // 2 TB, 320 GB 1 TB, on two EPYC 7742 with 8 channels of DDR4-3200; DGX H100 and H200 2 TB on two Xeon 8480C with
  // 8 of DDR5-4800; DGX B200 2 TB on two Xeon 8570 with 8 of DDR5-5600; DGX B300 2 TB on two Xeon 6776P with 8 of
  // DDR5-6400. GB200 and GB300 NVL72 pages: 17 TB of LPDDR5X at 18.4 and at 14 TB/s, for 72. Atlas 800T A2 pages:
  // 32 sticks of up to 64 GB on four Kunpeng 920 with 8 channels of DDR4-3200. Azure's ND MI300X v5: 1,850 GiB on
  // two Xeon 8480C.
  const auto host = [&](std::initializer_list<std::string_view> names, double bytes, double bytes_per_s,
                        int devices) {
    for (Accelerator& a : all) {
      if (std::find(names.begin(), names.end(), a.name) == names.end()) continue;
      a.host_memory_bytes = bytes / devices;
      a.host_memory_bytes_per_s = bytes_per_s / devices;
    }
  };
  constexpr double ddr4 = 16 * 25.6 * G, ddr5 = 16 * 38.4 * G;
  host({"A100-40"}, 1 * T, ddr4, 8);
  host({"A100-80"}, 2 * T, ddr4, 8);
  host({"H100", "H100-500W", "H800", "H200", "H20"}, 2 * T, ddr5, 8);
  host({"B200"}, 2 * T, 16 * 44.8 * G, 8);
  host({"B300"}, 2 * T, 16 * 51.2 * G, 8);
  host({"GB200"}, 17 * T, 18.4 * T, 72);
  host({"GB300"}, 17 * T, 14 * T, 72);
  host({"Ascend-910B", "Ascend-910B1", "Ascend-910B3", "Ascend-910B4"}, 32 * 64 * GiB, 2 * ddr4, 8);
  host({"MI300X", "MI325X", "MI350X", "MI355X"}, 1850 * GiB, ddr5, 8);
  return all;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string lower(std::string_view text) {
  std::string out(text.substr(0, 300));
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

const Accelerator* accelerator_named(std::string_view name) {
  for (const Accelerator& a : accelerators())
    if (same_name(a.name, name)) return &a;
  return nullptr;
}

std::optional<Precision> precision_named(std::string_view name) {
  for (const Precision p :
       {Precision::bf16, Precision::fp16, Precision::fp8, Precision::mxfp8, Precision::block8, Precision::nvfp4})
    if (name_of(p) == name) return p;
  return std::nullopt;
}

std::string_view name_of(Precision p) {
  switch (p) {
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
    case Precision::fp8: return "fp8";
    case Precision::mxfp8: return "mxfp8";
    case Precision::block8: return "block8";
    case Precision::nvfp4: return "nvfp4";
  }
  return "";
}

double Accelerator::flops(Precision p) const {
  if (p == Precision::nvfp4 && fp4_flops > 0) return fp4_flops;
  if (p != Precision::bf16 && p != Precision::fp16 && fp8_flops > 0) return fp8_flops;
  return bf16_flops;
}

const std::vector<Accelerator>& accelerators() {
  static const std::vector<Accelerator> all = make_accelerators();
  return all;
}

Accelerator find_accelerator(std::string_view text) {
  const std::string t = lower(text);
  // Words that a text must contain, most particular first.
  static const std::vector<std::pair<const char*, const char*>> names = {
      {"gb300", "GB300"},
      {"gb200", "GB200"},
      {"b300", "B300"},
      {"b200", "B200"},
      {"h200", "H200"},
      {"h800", "H800"},
      {"h100", "H100"},
      {"gh200", "H100"},
      {"h20", "H20"},
      {"a800", "A100-80"},
      {"a100", "A100-80"},
      {"910c", "Ascend-910C"},
      {"a3 ", "Ascend-910C"},
      {"910a", "Ascend-910A"},
      {"910b1", "Ascend-910B1"},
      {"910b3", "Ascend-910B3"},
      {"910b4", "Ascend-910B4"},
      {"313t", "Ascend-910B3"},
      {"800t a2, ", "Ascend-910B3"},
      {"910", "Ascend-910B"},
      {"ascend", "Ascend-910B"},
      {"c500", "C500"},
      {"metax", "C500"},
      {"mi355", "MI355X"},
      {"mi350", "MI350X"},
      {"mi325", "MI325X"},
      {"mi300", "MI300X"},
      {"gaudi3", "Gaudi3"},
      {"gaudi 3", "Gaudi3"},
      {"gaudi", "Gaudi2"},
      {"v5p", "TPU-v5p"},
      {"v5e", "TPU-v5e"},
      {"v6e", "TPU-v6e"},
      {"trillium", "TPU-v6e"},
      {"tpu v4", "TPU-v4"},
      {"tpu-v4", "TPU-v4"},
  };
  const Accelerator* found = accelerator_named(text.substr(0, 60));
  for (const auto& [part, name] : names) {
    if (found != nullptr) break;
    if (!has(t, part)) continue;
    found = accelerator_named(name);
    break;
  }
  if (found == nullptr) return {};
  Accelerator a = *found;
  if (a.name == "A100-80" && has(t, "40gb")) a = *accelerator_named("A100-40");
  if (a.name == "H100" && has(t, "500w")) a = *accelerator_named("H100-500W");
  // A slice ends the tori: v4-N and v5p-N have N / 2 chips, v5e-N N.
  if (a.family == Family::tpu)
    for (const char* mark : {"v4-", "v5p-", "v5e-", "v6e-"})
      if (const size_t at = t.find(mark); at != std::string::npos) {
        const int n = std::atoi(t.c_str() + at + std::string_view(mark).size());
        const bool halved = a.name == "TPU-v4" || a.name == "TPU-v5p";
        if (n >= 8) a.inner.ranks = std::min(a.inner.ranks, halved ? n / 2 : n);
      }
  // Jean Zay (IDRIS pages): four 100 Gbit/s Omni-Path adapters for the eight GPUs of a node.
  if (has(t, "jean zay")) a.outer = {0, 6.25e9, 15};
  return a;
}

}  // namespace heddle::cost
