// Finds a value that is given to an option which takes none. CLI11 accepts "--json=3" for "--json", and reads "-h=3" as
// the options -h, -= and -3.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace amldist::commands {

/// The first option without values, as written, that has one in the same word: "--json" of "--json=3", "-h" of "-h=3".
/// What is behind "--" is not looked at. Options whose value may be left out must be told by their flag override not
/// being disabled.
[[nodiscard]] std::optional<std::string> switch_with_value(const CLI::App& app, std::span<const std::string> words);

}  // namespace amldist::commands
