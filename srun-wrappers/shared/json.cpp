#include "shared/json.hpp"

#include <nlohmann/json.hpp>

namespace amldist::commands {

using nlohmann::ordered_json;

std::string json_text(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ascii_json(const ordered_json& json) {
  return json.dump(2, ' ', true, ordered_json::error_handler_t::replace);
}

ordered_json parse_json(std::string_view text) { return ordered_json::parse(text, nullptr, false); }

}  // namespace amldist::commands
