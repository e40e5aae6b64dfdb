#include "base/os/shared_object.hpp"

#include <dlfcn.h>

namespace amldist {

std::string own_folder() {
  Dl_info info = {};
  static const char anchor = 0;
  if (::dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

std::string reason_of_linker() {
  const char* const words = ::dlerror();
  std::string reason = words != nullptr ? words : "the dynamic linker gives no reason";
  for (char& c : reason) {
    if (c < ' ' || c >= 0x7f) c = '?';
  }
  return reason.substr(0, 300);
}

}  // namespace amldist
