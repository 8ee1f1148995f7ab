// The vendors of devices that run CUDA's source, and their libraries by name. A build is for one vendor
// (HEDDLE_VENDOR: nvidia, metax or amd). It links none of these libraries: it opens them when a run first needs
// them.
//
// Sources: NVIDIA's toolkit; the libraries and headers of MXMACA 3.7 (/opt/maca/lib, /opt/maca/include), as
// vLLM-metax and FlagCX open them; ROCm 6 and 7 (RCCL keeps NCCL's names).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/shared_library.h"

namespace heddle::device {

enum class Vendor : uint8_t { nvidia, metax, amd };
enum class LibraryUse : uint8_t { products, messages, attention };

#ifndef HEDDLE_VENDOR
#define HEDDLE_VENDOR nvidia
#endif
/// The vendor of the devices that this program is built for.
constexpr Vendor kVendor = Vendor::HEDDLE_VENDOR;

struct LibraryNames {
  Vendor vendor;
  LibraryUse use;
  const char* name;     // in messages
  const char* file;     // that the loader looks for; "{}" is the major release of the headers
  const char* prefix;   // of the names of its functions
  const char* why_not;  // this program never calls it; null where it does
};
constexpr LibraryNames kLibraries[] = {
    {Vendor::nvidia, LibraryUse::products, "cuBLASLt", "libcublasLt.so.{}", "cublasLt", nullptr},
    {Vendor::nvidia, LibraryUse::messages, "NCCL", "libnccl.so.2", "nccl", nullptr},
    {Vendor::nvidia, LibraryUse::attention, "cuDNN", "libcudnn.so.9", "cudnn", nullptr},
    {Vendor::metax, LibraryUse::products, "mcBLASLt", "libmcblasLt.so", "mcblasLt", nullptr},
    {Vendor::metax, LibraryUse::messages, "MCCL", "libmccl.so", "mccl", nullptr},
    {Vendor::metax, LibraryUse::attention, "mcDNN", "libmcdnn.so", "mcdnn", "it has no graphs of cuDNN 9"},
    {Vendor::amd, LibraryUse::products, "hipBLASLt", "libhipblaslt.so", "hipblasLt",
     "it cannot check an algorithm that was chosen before"},
    {Vendor::amd, LibraryUse::messages, "RCCL", "librccl.so.1", "nccl", nullptr},
    {Vendor::amd, LibraryUse::attention, "MIOpen", "libMIOpen.so.1", "miopen", "it has no graphs of cuDNN 9"},
};

constexpr const LibraryNames& library_names(LibraryUse use, Vendor vendor = kVendor) {
  for (const LibraryNames& names : kLibraries) {
    if (names.vendor == vendor && names.use == use) return names;
  }
  return kLibraries[0];  // every vendor has a row of every use: held by the test
}

/// Names of the vendor's driver and tools, for messages, and the shared memory of a block.
struct VendorWords {
  Vendor vendor;
  const char* company;
  const char* platform;
  const char* manager;  // the program that shows devices
  const char* visible;  // the environment variable that hides devices
  int64_t shared_kib;   // of a block, at most; of NVIDIA's and MetaX's devices the largest that is known
};
constexpr VendorWords kVendors[] = {
    {Vendor::nvidia, "NVIDIA", "CUDA", "nvidia-smi", "CUDA_VISIBLE_DEVICES", 227},
    {Vendor::metax, "MetaX", "MXMACA", "mx-smi", "MACA_VISIBLE_DEVICES", 227},
    {Vendor::amd, "AMD", "ROCm", "rocm-smi", "HIP_VISIBLE_DEVICES", 64},
};
constexpr const VendorWords& vendor_words(Vendor vendor = kVendor) { return kVendors[static_cast<int>(vendor)]; }

/// A vendor's library, opened, and its functions.
class OpenedLibrary {
 public:
  /// Looks for the file `named` by the user (null: none), for what the loader finds, and for the file `built`,
  /// where it lay when the program was built ("": nowhere). `major`: the major release of the headers.
  OpenedLibrary(const LibraryNames& names, int major, const char* named, const char* built)
      : names_(names),
        file_(fmt::format(fmt::runtime(names.file), major)),
        library_({named == nullptr ? "" : named, file_.c_str(), built}) {}

  /// Null where no file was found.
  void* handle() const { return library_.handle(); }
  /// The name that the loader looked for.
  const std::string& file() const { return file_; }
  /// Sets `function`, null where there is none. `rest`: its name behind the vendor's prefix.
  template <class Function>
  void find(Function& function, std::string_view rest) {
    const std::string name = fmt::format("{}{}", names_.prefix, rest);
    library_.find(function, name.c_str());
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  /// The first function that was not found; "" where all were.
  const std::string& missing() const { return missing_; }

 private:
  const LibraryNames& names_;
  std::string file_, missing_;
  SharedLibrary library_;
};

/// Why own kernels do the work of this library: this program never calls it, or was built without its headers.
inline std::string unused_text(LibraryUse use, std::string_view headers, std::string_view instead) {
  const LibraryNames& names = library_names(use);
  return names.why_not == nullptr
             ? fmt::format("built without {}: {}", headers, instead)
             : fmt::format("{} ({}) is not used, since {}: {}", names.name, names.file, names.why_not, instead);
}

}  // namespace heddle::device
