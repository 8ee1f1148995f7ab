// A shared library that is looked for while the program runs, and its functions by name.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace heddle {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// Opens the first of these names that the loader finds. Empty names are passed over. The library stays open.
  explicit SharedLibrary(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (handle_ == nullptr && *name != '\0') handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }

  /// The handle from dlopen; null where no name was found.
  void* handle() const { return handle_; }
  /// Sets `function`; to null where the library has none of this name.
  template <class Function>
  void find(Function& function, const char* name) {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  /// The first name that was not found; null where all were.
  const char* missing() const { return missing_; }

  /// The file that a function lies in; "" where that is not known.
  template <class Function>
  static std::string file_of(Function* function) {
    Dl_info at{};
    return dladdr(reinterpret_cast<void*>(function), &at) == 0 ? "" : at.dli_fname;
  }

 private:
  void* handle_ = nullptr;
  const char* missing_ = nullptr;
};

}  // namespace heddle
