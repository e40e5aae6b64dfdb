// A vendor's library, opened while the program runs and never closed: providers leave threads and handlers behind.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

#include "base/text/result.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {

class VendorLibrary {
 public:
  /// The one called `named`; where that is empty, the first of `names` that is here.
  VendorLibrary(const std::string& named, std::span<const char* const> names)
      : name_(named.empty() ? names.front() : named), handle_(open(name_.c_str())) {
    if (!named.empty()) return;
    for (const char* const name : names) handle_ = handle_ != nullptr ? handle_ : open(name);
  }

  template <typename Function>
  void find(Function*& target, const char* name) {
    find_optional(target, name);
    if (target == nullptr && missing_.empty()) missing_ = name;
  }
  /// nullptr: this release of the library lacks it.
  template <typename Function>
  void find_optional(Function*& target, const char* name) const {
    target = handle_ != nullptr ? reinterpret_cast<Function*>(::dlsym(handle_, name)) : nullptr;
  }
  /// Errors: unavailable, if the library or a function that find() looked for is not here.
  [[nodiscard]] Result<void> is_whole() const {
    if (handle_ == nullptr) return Error{Errc::unavailable, text::concat({name_, " is not installed"})};
    if (missing_.empty()) return {};
    return Error{Errc::unavailable, text::concat({name_, " is too old: it has no ", missing_})};
  }

 private:
  static void* open(const char* name) noexcept { return ::dlopen(name, RTLD_NOW | RTLD_LOCAL); }

  std::string name_;
  void* handle_;
  std::string missing_;
};

}  // namespace amldist::fabric
