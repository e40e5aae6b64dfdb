// What opening a shared object at run time takes, beside dlopen() itself.
#pragma once

#include <string>

namespace amldist {

/// The folder of the file that this code is in, with a slash at the end; "" where the linker does not know it.
[[nodiscard]] std::string own_folder();

/// What the dynamic linker said last, made fit for one line.
[[nodiscard]] std::string reason_of_linker();

}  // namespace amldist
