// Untrusted text made safe to print.
#pragma once

#include <string>
#include <string_view>

namespace amldist::text {

/// `input` as one printable line: control and non-ASCII bytes become \xNN, and whatever exceeds `most` characters
/// becomes "...".
[[nodiscard]] std::string printable(std::string_view input, std::size_t most);

}  // namespace amldist::text
