// heddle doctor: what this machine offers and what Heddle makes of it, each finding marked good or worth a look.
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/version.hpp>

#include "heddle/backends/backend.h"
#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/base/text.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/comm/device_world.h"
#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/streaming.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/data/tokenizer/split_pattern.h"
#include "heddle/device/device.h"
#include "heddle/device/device_facts.h"
#include "heddle/device/host/allowed_cores.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/device/vendor.h"
#include "heddle/kernels/host/cpu_features.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/planner/device/try_device.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/train/run_config_plan.h"
#if __has_include(<toml++/impl/version.hpp>)  // the name from version 3.4 on
#include <toml++/impl/version.hpp>
#else
#include <toml++/impl/version.h>
#endif

namespace heddle::cli {

namespace {

struct DoctorOptions {
  std::string device;  // a backend, to be tried; empty: none
  bool json = false;
};

using Json = nlohmann::ordered_json;

struct Finding {
  bool good = true;
  std::string what;
  std::string found;
  std::string remedy = {};  // for a bad finding, where one is known
};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.starts_with("model name"))
      return std::string(trimmed(std::string_view(line).substr(colon + 1)));
  }
  return "unknown";
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trimmed(line));
}

std::vector<Finding> machine_findings() {
  std::vector<Finding> all;
  const auto add = [&](bool good, std::string what, std::string found) {
    all.push_back({good, std::move(what), std::move(found)});
  };
  add(true, "processor", processor_name());
  const int64_t online = sysconf(_SC_NPROCESSORS_ONLN);
  const int allowed = device::allowed_cores();
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  add(allowed >= online, "processors",
      allowed >= online ? fmt::format("{}", online)
                        : fmt::format("{} of {} allowed to this process", allowed, online));
  if (!quota.empty() && !quota.starts_with("max")) {
    add(false, "processor quota", fmt::format("the control group limits processor time (cpu.max: {})", quota));
  }
  using namespace kernels::host;
  for (const auto& [name, support] : processor_features()) {
    add(support.ok, name, support.ok ? "yes" : "no: " + support.reason);
  }
  if (!masked_features().empty()) {
    add(false, "masked features", fmt::format("{} (HEDDLE_CPU_WITHOUT)", fmt::join(masked_features(), ", ")));
  }
  const int64_t memory = device::host_memory_bytes(), available = device::host_memory_left_bytes();
  add(available * 4 > memory, "memory",
      fmt::format("{}, {} available", observe::bytes_text(static_cast<double>(memory)),
                  observe::bytes_text(static_cast<double>(available))));
  rlimit address_space{};
  const bool known = getrlimit(RLIMIT_AS, &address_space) == 0;
  const bool limited =
      known && address_space.rlim_cur != RLIM_INFINITY && address_space.rlim_cur < static_cast<rlim_t>(memory);
  // Without overcommitment a mapping counts in full, touched or not.
  const bool strict = first_line("/proc/sys/vm/overcommit_memory") == "2";
  add(!limited && !strict, "arena at most",
      fmt::format("{}{}{}", observe::bytes_text(static_cast<double>(memory)),
                  limited ? fmt::format("; the process may map {} (ulimit -v)",
                                        observe::bytes_text(static_cast<double>(address_space.rlim_cur)))
                          : "",
                  strict ? "; the system doesn't overcommit: set device.memory_bytes to what a run needs" : ""));
  const std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const bool off = huge.empty() || huge.find("[never]") != std::string::npos;
  add(!off, "transparent huge pages", huge.empty() ? "not known to this kernel" : huge);
  return all;
}

std::vector<Finding> library_findings() {
  std::vector<Finding> all;
  all.push_back({true, "heddle", HEDDLE_VERSION});
#if defined(__clang__)
  all.push_back({true, "compiler", fmt::format("Clang {}", __clang_version__)});
#else
  all.push_back({true, "compiler", fmt::format("GCC {}", __VERSION__)});
#endif
  const std::string_view sanitizers = HEDDLE_SANITIZE;
  const bool fast = std::string_view(HEDDLE_BUILD) == "Release" && sanitizers.empty();
  all.push_back(
      {fast, "build", fmt::format("{}{}{}", HEDDLE_BUILD, sanitizers.empty() ? "" : ", sanitizers ", sanitizers)});
  all.push_back({true, "glibc", gnu_get_libc_version()});
  all.push_back({true, "OpenMP", fmt::format("{}", _OPENMP)});
  all.push_back({true, "Highway", kernels::host::highway_text()});
  all.push_back(
      {true, "fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)});
  all.push_back({true, "nlohmann JSON",
                 fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                             NLOHMANN_JSON_VERSION_PATCH)});
  all.push_back({true, "toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)});
  all.push_back({true, "protozero", PROTOZERO_VERSION_STRING});
  all.push_back({true, "PCRE2", data::pattern_library_text()});
  all.push_back({true, "zlib", zlibVersion()});
  return all;
}

// Backends that can run a step and carry its messages, and those that can't, with the reason.
std::vector<Finding> backend_findings() {
  std::vector<Finding> all;
  all.push_back({true, "device host", "kernels of the tables below"});
  all.push_back({true, "device reference", "plain loops; they define the results"});
  const device::VendorWords& vendor = device::vendor_words();
  const bool nvidia = device::kVendor == device::Vendor::nvidia;
  const std::string driver = nvidia ? first_line("/proc/driver/nvidia/version") : "";
  const Support cuda = device::cuda_available();
  all.push_back(
      {cuda || driver.empty(), "device cuda",
       cuda ? fmt::format("a GPU of {} a rank{}", vendor.company, driver.empty() ? "" : " (" + driver + ")")
            : fmt::format("not available: {}{}{}", cuda.reason,
                          nvidia && driver.empty() ? "; this machine has no NVIDIA driver" : "",
                          driver.empty() ? "" : "; " + driver)});
  const kernels::VendorLibrary products = kernels::cuda_product_library();
  all.push_back({products.there || !cuda, "products on cuda", products.text});
  const kernels::VendorLibrary attention = kernels::cuda_attention_library();
  all.push_back({attention.there || !cuda, "attention on cuda", attention.text});
  all.push_back({true, "messages by threads", "ranks in one process"});
  all.push_back({comm::mpi_available(), "messages by MPI",
                 comm::mpi_available() ? "ranks started by mpirun or srun" : "not available: built without MPI"});
  const Support engine = comm::copy_core_available();
  const comm::CopyCore& core = comm::copy_core();
  all.push_back({true, "copy engine",
                 engine ? fmt::format("a worker on processor {}; \"auto\" gives it one of {} or more ({} here)",
                                      core.core, runtime::kManyCores, core.allowed)
                        : fmt::format("not available: {}", engine.reason)});
  const comm::StreamingAccelerators streaming = comm::streaming_accelerators();
  all.push_back({true, "data streaming", streaming.text()});
  const Support nccl = cuda ? comm::device_world_available() : Support::no("no CUDA device");
  all.push_back({nccl || !cuda,
                 fmt::format("messages by {}", device::library_names(device::LibraryUse::messages).name),
                 nccl ? "ranks on GPUs" : fmt::format("not available: {}", nccl.reason)});
  return all;
}

struct Choice {
  std::string chosen;                 // "host.gemm:amx"
  std::vector<std::string> refusals;  // "host.gemm: why not"
  bool loops = false;                 // some of these ops run on the reference's loops, which are slow
};

// Answers of a backend's kernels to every op of the small model's step.
std::map<std::string, Choice> choices(const char* backend, const char* dtype) {
  config::RunConfig config;
  config.model = config::preset("demo");
  config.device.backend = backend;
  config.device.dtype = from_word<std::optional<Dtype>>(dtype);
  const plan::Lowered lowered = plan::lower(config.model, train::plan_of(config));
  const backends::Backend& runs = backends::named(backend);
  const std::vector<kernels::KernelEntry>& plain = kernels::reference_kernels();
  std::map<std::string, Choice> of;
  for (const ir::Listing& listing : lowered.program.listings) {
    for (const ir::Op& op : listing.ops) {
      if (runs.find_collective(op.kind()) != nullptr) continue;
      std::vector<std::string> refusals;
      const kernels::KernelEntry& kernel = runs.select_kernel(listing, op, &refusals);
      Choice& choice = of[std::string(op.kind())];
      // An op that reads nothing but the batch copies it, wherever it runs.
      choice.loops |= !op.in.empty() && &kernel >= &plain.front() && &kernel <= &plain.back();
      std::string name = fmt::format("{}.{}", kernel.backend, kernel.name);
      if (kernel.engine) name += fmt::format(":{}", kernel.engine(listing, op));
      if (choice.chosen.find(name) == std::string::npos)
        choice.chosen += (choice.chosen.empty() ? "" : ", ") + name;
      for (std::string& refusal : refusals) {
        if (std::find(choice.refusals.begin(), choice.refusals.end(), refusal) == choice.refusals.end()) {
          choice.refusals.push_back(std::move(refusal));
        }
      }
    }
  }
  return of;
}

struct Marks {
  observe::Terminal terminal = observe::describe_terminal(1);
  std::string sign(bool good) const {
    return good ? (terminal.unicode ? "✓" : "ok") : (terminal.unicode ? "!" : "!!");
  }
  std::string mark(bool good) const {
    if (!terminal.colour) return sign(good);
    return fmt::format("\x1b[{}m{}\x1b[0m", good ? 32 : 33, sign(good));
  }
};

void print(const std::vector<Finding>& findings, const Marks& marks) {
  for (const Finding& f : findings) {
    say("  {} {:<24} {}\n", marks.mark(f.good), f.what, f.found);
    if (!f.remedy.empty()) say("    {:<24} {}\n", "", f.remedy);
  }
}

Json json_of(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& f : findings) {
    json.push_back({{"good", f.good}, {"what", f.what}, {"found", f.found}});
    if (!f.remedy.empty()) json.back()["remedy"] = f.remedy;
  }
  return json;
}

struct BackendColumn {
  const char* title;
  const char* backend;
  const char* dtype;
};
constexpr BackendColumn kColumns[] = {{"host, bf16", "host", "bf16"}, {"host, f32", "host", "f32"}};

// The libraries of the vendor that this program is built for, as it finds them here: each with the name that it
// looks for.
std::vector<Finding> vendor_findings() {
  const kernels::VendorLibrary products = kernels::cuda_product_library(),
                               attention = kernels::cuda_attention_library();
  return {{products.there, "library of products", products.text},
          {attention.there, "library of attention", attention.text},
          {comm::device_world_available().ok, "library of messages", comm::device_world_text()}};
}

// Facts that the devices report, then the behaviour of one of them; without a device, the libraries beside the
// facts.
std::vector<Finding> device_findings(const std::string& backend) {
  std::vector<Finding> all;
  if (backend == "cuda") {
    for (device::DeviceFact& f : device::cuda_facts({}))
      all.push_back({f.good, std::move(f.what), std::move(f.found), std::move(f.remedy)});
    if (!device::cuda_available()) {
      if (!kernels::cuda_kernels().empty()) std::ranges::move(vendor_findings(), std::back_inserter(all));
      return all;
    }
  }
  for (planner::Trial& t : planner::try_device(backend))
    all.push_back({t.good, std::move(t.what), std::move(t.found), std::move(t.remedy)});
  return all;
}

int try_device(const DoctorOptions& options) {
  const std::vector<Finding> found = device_findings(options.device);
  const bool good = std::ranges::all_of(found, &Finding::good);
  if (options.json) {
    say("{}\n", Json{{"device", options.device}, {"good", good}, {"trials", json_of(found)}}.dump(
                    2, ' ', false, Json::error_handler_t::replace));
  } else {
    const Marks marks;
    say("device {}\n", options.device);
    print(found, marks);
  }
  return good ? kDone : kFailed;
}

int doctor(const DoctorOptions& options) {
  if (!options.device.empty()) return try_device(options);
  const std::vector<Finding> machine = machine_findings(), libraries = library_findings(),
                             backends = backend_findings();
  std::vector<std::map<std::string, Choice>> chosen;
  for (const BackendColumn& c : kColumns) chosen.push_back(choices(c.backend, c.dtype));
  config::RunConfig defaults;
  const std::string_view dtype = name_of(train::resolved_dtype(defaults));
  if (options.json) {
    Json json{{"machine", json_of(machine)},
              {"libraries", json_of(libraries)},
              {"backends", json_of(backends)},
              {"dtype_auto", dtype}};
    for (size_t i = 0; i < chosen.size(); ++i) {
      Json kinds = Json::object();
      for (const auto& [kind, choice] : chosen[i])
        kinds[kind] = {{"chosen", choice.chosen}, {"loops", choice.loops}, {"refusals", choice.refusals}};
      json["kernels"][kColumns[i].backend][kColumns[i].dtype] = kinds;
    }
    say("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return kDone;
  }
  const Marks marks;
  say("machine\n");
  print(machine, marks);
  say("\nlibraries\n");
  print(libraries, marks);
  say("\nbackends\n");
  print(backends, marks);
  say("\nkernels of the small model's step (device.dtype = \"auto\" is {} here)\n", dtype);
  observe::Table table({{"op"}, {kColumns[0].title}, {kColumns[1].title}});
  const auto cell = [&](const Choice& choice) {
    return choice.loops ? fmt::format("{} {}", marks.sign(false), choice.chosen) : choice.chosen;
  };
  std::map<std::string, std::string> on_loops;  // op: of which types
  for (const auto& [kind, choice] : chosen[0]) {
    const auto other = chosen[1].find(kind);
    table.row({kind, cell(choice), other == chosen[1].end() ? "" : cell(other->second)});
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (const auto& [kind, choice] : chosen[i]) {
      if (choice.loops) on_loops[kind] += (on_loops[kind].empty() ? "" : ", ") + std::string(kColumns[i].dtype);
    }
  }
  say("{}", table.text(marks.terminal));
  for (const auto& [kind, dtypes] : on_loops) {
    say("  {} {} in {} runs on reference loops, many times slower than a kernel\n", marks.mark(false), kind,
        dtypes);
  }
  bool any = false;
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (const auto& [kind, choice] : chosen[i]) {
      for (const std::string& refusal : choice.refusals) {
        if (!any) say("\nkernels passed over\n");
        any = true;
        say("  {}, {}: {}\n", kind, kColumns[i].title, refusal);
      }
    }
  }
  return kDone;
}

}  // namespace

void add_doctor(Commands& all) {
  auto [command, options] =
      add_command(all, "doctor", "What this machine can do, and which kernels are chosen on it", doctor);
  command.option("--device", options.device, "Try the kernels of this device, in some seconds").among({"cuda"});
  add_json(command, options.json);
}

}  // namespace heddle::cli
