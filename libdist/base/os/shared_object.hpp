// Helpers for opening a shared object at run time.
#pragma once

#include <string>

namespace amldist {

/// The folder of the file that contains this code, with a slash at the end; "" if the linker does not know it.
[[nodiscard]] std::string own_folder();

/// The dynamic linker's last error as one line.
[[nodiscard]] std::string reason_of_linker();

}  // namespace amldist
