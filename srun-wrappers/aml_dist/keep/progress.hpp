// How far a training has come, as a text that differs when it has advanced.
#pragma once

#include <string>

namespace amldist::keep {

/// The newest file below a folder, with its time and size; empty: there is no file.
[[nodiscard]] std::string newest_below(const std::string& folder);

/// For a file its time and size; else what the command prints, within ten seconds. Empty: nothing.
[[nodiscard]] std::string progress_of(const std::string& file_or_command);

}  // namespace amldist::keep
