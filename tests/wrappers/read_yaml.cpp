// Reads documents from standard input, each behind a line with its length in bytes, and prints a line of JSON for each:
// {"error": sentence}, or {"value": tree}. In the tree a map is {"map": [[key, value], ...]}, and a scalar has its kind
// beside its text: {"whole": "8"}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "aml_run/yaml/yaml_reading.hpp"
#include "aml_run/yaml/yaml_tree.hpp"

namespace {

using namespace amldist::run;
using nlohmann::ordered_json;

ordered_json show_scalar(const std::string& text, bool plain) {
  const YamlReading reading = plain ? read_plain(text) : YamlReading{YamlReading::Kind::text, text};
  switch (reading.kind) {
    case YamlReading::Kind::truth:
      return {{"truth", reading.text}};
    case YamlReading::Kind::whole:
      return {{"whole", reading.text}};
    case YamlReading::Kind::real:
      return {{"real", reading.text}};
    case YamlReading::Kind::text:
      break;
  }
  return {{"text", reading.text}};
}

ordered_json show(const YamlValue& value) {
  ordered_json out = ordered_json::array();
  switch (value.kind) {
    case YamlValue::Kind::null:
      return nullptr;
    case YamlValue::Kind::scalar:
      return show_scalar(value.text, value.plain);
    case YamlValue::Kind::list:
      for (const YamlValue& item : value.items) out.push_back(show(item));
      return out;
    case YamlValue::Kind::map:
      break;
  }
  for (const YamlEntry& entry : value.entries) {
    out.push_back({show_scalar(entry.key, !entry.quoted), show(entry.value)});
  }
  return {{"map", out}};
}

}  // namespace

int main() {
  std::string length;
  while (std::getline(std::cin, length)) {
    std::string text(std::stoul(length), '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    const auto tree = parse_yaml("f", text);
    const ordered_json line =
        tree ? ordered_json{{"value", show(*tree)}} : ordered_json{{"error", tree.error().message}};
    std::cout << line.dump(-1, ' ', true, ordered_json::error_handler_t::replace) << "\n";
  }
}
