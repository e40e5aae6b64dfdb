// Functions of a vendor's library, looked up at run time.
#pragma once

#include <dlfcn.h>

namespace amldist::fabric {

/// nullptr if this release of the library lacks it.
template <typename Function>
void find_function(void* library, Function*& target, const char* name) {
  target = reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace amldist::fabric
