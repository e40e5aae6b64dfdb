// JSON as text, and text as JSON: what parses and prints is templates, compiled here once.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace amldist::commands {

/// Ends in a newline. Bytes that are not UTF-8, which a user's may be, become U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = 2);
/// The same in ASCII, and without the newline.
[[nodiscard]] std::string ascii_json(const nlohmann::ordered_json& json);

/// Discarded (is_discarded()) if the text is not JSON.
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace amldist::commands
