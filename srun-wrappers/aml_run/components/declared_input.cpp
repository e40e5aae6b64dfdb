#include "aml_run/components/declared_input.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "aml_run/job_inputs.hpp"
#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

std::string type_of(const YamlEntry& declared) {
  const YamlValue* const type = declared.value.find("type");
  if (type != nullptr && type->kind == YamlKind::scalar) return text::to_lower(type->text);
  return declared.value.kind == YamlKind::scalar ? text::to_lower(declared.value.text) : std::string("string");
}

bool is_literal_type(std::string_view type) {
  return type == "string" || type == "integer" || type == "number" || type == "boolean" || type == "enum";
}

bool is_true(const YamlValue* value) { return value != nullptr && text::to_lower(value->text) == "true"; }

bool is_integer(const std::string& text) {
  const auto number = finite_number(text);
  return number && *number == std::floor(*number) && text.find_first_of(".xXpP") == std::string::npos;
}

/// What is wrong with a literal, as a clause; empty if it is valid.
std::string why_not(const YamlEntry& declared, const std::string& type, const std::string& value) {
  if (type == "integer" && !is_integer(value)) return "use a whole number";
  if ((type == "number" || type == "float") && !finite_number(value)) return "use a number";
  if (type == "boolean" && text::to_lower(value) != "true" && text::to_lower(value) != "false")
    return "use true or false";
  if (const auto number = finite_number(value); number && (type == "integer" || type == "number")) {
    const YamlValue* const least = declared.value.find("min");
    const YamlValue* const most = declared.value.find("max");
    if (least != nullptr && *number < finite_number(least->text).value_or(*number))
      return concat({"the minimum is ", least->text});
    if (most != nullptr && *number > finite_number(most->text).value_or(*number))
      return concat({"the maximum is ", most->text});
  }
  // Azure ML does not check a text against the list: its own examples pass others.
  if (type == "string") return {};
  const YamlValue* const values = declared.value.find("enum");
  if (values == nullptr || values->items.empty()) return {};
  if (std::ranges::find(values->items, value, &YamlValue::text) != values->items.end()) return {};
  std::vector<std::string_view> names;
  for (const YamlValue& item : values->items) names.emplace_back(item.text);
  return concat({"use one of ", text::join(names)});
}

/// A path as a map with the declared type.
YamlValue with_type(const YamlEntry& declared, YamlValue value, const std::string& type) {
  if (value.kind == YamlKind::scalar) {
    YamlValue map = YamlValue::map(value.location);
    map.put("path", std::move(value));
    value = std::move(map);
  }
  if (value.find("type") == nullptr && !type.empty()) {
    value.put("type", YamlValue::scalar(type, declared.location));
  }
  return value;
}

}  // namespace

Result<YamlValue> bind_input(std::string_view file, const std::string& folder, const YamlEntry& declared,
                             const YamlValue* given) {
  const std::string type = type_of(declared);
  const YamlValue* const standard = declared.value.find("default");
  YamlValue value;
  if (given != nullptr) {
    value = *given;
  } else if (standard != nullptr) {
    value = *standard;
    if (!is_literal_type(type) && value.kind == YamlKind::scalar && !is_remote(value.text)) {
      value.text = local_path(folder, value.text);
    }
  }
  if (value.is_null()) {
    if (is_true(declared.value.find("optional"))) return value;
    return error_at(file, declared.location,
                    concat({"inputs.", declared.key, " has no value: add --set inputs.", declared.key, "=VALUE"}));
  }
  if (!is_literal_type(type)) return with_type(declared, std::move(value), type);
  if (const YamlValue* const literal = value.find("value")) value = YamlValue(*literal);
  if (value.kind != YamlKind::scalar) {
    // The output of another job, for a component that takes text: its path.
    if (value.find("path") != nullptr) return value;
    return error_at(file, value.location, concat({"inputs.", declared.key, " is of type ", type, ": use one value"}));
  }
  if (const auto why = why_not(declared, type, value.text); !why.empty()) {
    return error_at(file, value.location, concat({"inputs.", declared.key, " is ", quote(value.text), ": ", why}));
  }
  if (type == "string") value.plain = false;  // `true` is then a text
  return value;
}

}  // namespace amldist::run
