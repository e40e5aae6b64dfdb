// Hostile text for people's eyes.
#pragma once

#include <string>
#include <string_view>

namespace amldist::text {

/// `input`, fit for one line of a terminal: control and non-ASCII bytes as \xNN, and "..." for what does not fit into
/// `most` characters.
[[nodiscard]] std::string printable(std::string_view input, std::size_t most);

}  // namespace amldist::text
