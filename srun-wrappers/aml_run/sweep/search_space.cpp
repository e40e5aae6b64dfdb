#include "aml_run/sweep/search_space.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using SpreadKind = Parameter::Kind;
using YamlKind = YamlValue::Kind;

struct Distribution {
  std::string_view type;
  SpreadKind kind;
  std::string_view first;   ///< key of Parameter::low
  std::string_view second;  ///< key of Parameter::high
  bool has_quantum;
};

constexpr std::array<Distribution, 10> distributions = {
    {{"choice", SpreadKind::choice, "", "", false},
     {"randint", SpreadKind::randint, "", "upper", false},
     {"uniform", SpreadKind::uniform, "min_value", "max_value", false},
     {"quniform", SpreadKind::uniform, "min_value", "max_value", true},
     {"loguniform", SpreadKind::loguniform, "min_value", "max_value", false},
     {"qloguniform", SpreadKind::loguniform, "min_value", "max_value", true},
     {"normal", SpreadKind::normal, "mu", "sigma", false},
     {"qnormal", SpreadKind::normal, "mu", "sigma", true},
     {"lognormal", SpreadKind::lognormal, "mu", "sigma", false},
     {"qlognormal", SpreadKind::lognormal, "mu", "sigma", true}}};

std::optional<double> number_of(const YamlValue* value) {
  return value != nullptr && value->kind == YamlKind::scalar ? finite_number(value->text) : std::nullopt;
}

/// The shortest text that reads back as the same number; with a quantum without the rounding noise of the last digits.
std::string text_of(double number, bool rounded) {
  if (number == 0) number = 0;  // no -0
  std::array<char, 64> out{};
  const bool whole = number == std::floor(number) && std::abs(number) < 1e15;
  const auto end = whole ? std::to_chars(out.data(), out.data() + out.size(), number, std::chars_format::fixed)
                   : rounded
                       ? std::to_chars(out.data(), out.data() + out.size(), number, std::chars_format::general, 12)
                       : std::to_chars(out.data(), out.data() + out.size(), number);
  return {out.data(), end.ptr};
}

/// A choice that is a list or a map is written as JSON.
nlohmann::ordered_json to_json(const YamlValue& value) {
  switch (value.kind) {
    case YamlKind::null:
      return nullptr;
    case YamlKind::list: {
      auto out = nlohmann::ordered_json::array();
      for (const YamlValue& item : value.items) out.push_back(to_json(item));
      return out;
    }
    case YamlKind::map: {
      auto out = nlohmann::ordered_json::object();
      for (const YamlEntry& entry : value.entries) out[entry.key] = to_json(entry.value);
      return out;
    }
    case YamlKind::scalar:
      break;
  }
  if (value.plain && (value.text == "True" || value.text == "False")) return value.text == "True";
  auto number = value.plain ? commands::parse_json(value.text) : nlohmann::ordered_json();
  return number.is_number() ? number : nlohmann::ordered_json(value.text);
}

std::string choice_text(const YamlValue& value) {
  if (value.kind == YamlKind::scalar) return value.text;
  if (value.is_null()) return "";
  std::string line = commands::json_text(to_json(value), -1);
  line.pop_back();  // its newline
  return line;
}

bool holds_distribution(const YamlValue& value) {
  const YamlValue* const type = value.find("type");
  const bool is_one =
      type != nullptr && std::ranges::find(distributions, type->text, &Distribution::type) != distributions.end();
  return is_one ||
         std::ranges::any_of(value.entries, [](const YamlEntry& entry) { return holds_distribution(entry.value); });
}

class ParameterReader {
 public:
  ParameterReader(std::string_view file, const YamlEntry& entry) : file_(file), entry_(entry) {}

  Result<Parameter> read() {
    if (!shell::is_name(entry_.key)) return wrong(entry_.location, "is not a valid name: use letters, digits and _");
    const YamlValue* const type = entry_.value.find("type");
    if (type == nullptr) return wrong(entry_.location, "has no type: use choice, uniform, ...");
    const auto* const found = std::ranges::find(distributions, text::to_lower(type->text), &Distribution::type);
    if (found == distributions.end()) return unknown(*type);
    Parameter out;
    out.name = entry_.key;
    out.kind = found->kind;
    auto done = found->kind == SpreadKind::choice ? read_choice(out) : read_numbers(*found, out);
    if (!done) return done.error();
    return out;
  }

 private:
  [[nodiscard]] Error wrong(const SourceLocation& location, std::string_view what) const {
    return error_at(file_, location, concat({"search_space.", entry_.key, " ", what}));
  }

  [[nodiscard]] Error unknown(const YamlValue& type) const {
    std::vector<std::string_view> names;
    names.reserve(distributions.size());
    for (const Distribution& each : distributions) names.push_back(each.type);
    const auto near = text::nearest(type.text, names);
    return wrong(type.location, concat({"has the unknown type ", quote(type.text),
                                        near ? concat({": did you mean '", *near, "'?"})
                                             : concat({": use one of ", text::join(names)})}));
  }

  Result<void> read_choice(Parameter& out) const {
    const YamlValue* const values = entry_.value.find("values");
    if (values == nullptr || values->kind != YamlKind::list || values->items.empty()) {
      return wrong(entry_.location, "is a choice without values: write a list");
    }
    for (const YamlValue& value : values->items) {
      if (holds_distribution(value)) {
        return wrong(value.location,
                     "has a search space inside a choice, which is not supported: write a sweep for each");
      }
      out.values.push_back(choice_text(value));
    }
    return check_keys({"values"});
  }

  Result<void> read_numbers(const Distribution& distribution, Parameter& out) const {
    const auto read = [&](std::string_view key, double& to) -> Result<void> {
      const YamlValue* const value = entry_.value.find(key);
      const auto number = number_of(value);
      if (!number)
        return wrong(value != nullptr ? value->location : entry_.location, concat({"needs ", key, ", a number"}));
      to = *number;
      return {};
    };
    if (!distribution.first.empty()) {
      if (auto status = read(distribution.first, out.low); !status) return status;
    }
    if (auto status = read(distribution.second, out.high); !status) return status;
    if (distribution.has_quantum) {
      if (auto status = read("q", out.quantum); !status) return status;
      if (out.quantum <= 0) return wrong(entry_.value.find("q")->location, "has a q that is not above 0");
    }
    if (auto status = check_order(out); !status) return status;
    return check_keys({distribution.first, distribution.second, distribution.has_quantum ? "q" : ""});
  }

  [[nodiscard]] Result<void> check_order(const Parameter& out) const {
    const bool spread = out.kind == SpreadKind::uniform || out.kind == SpreadKind::loguniform;
    if (spread && out.low >= out.high) return wrong(entry_.location, "has a min_value that is not below max_value");
    if (out.kind == SpreadKind::loguniform && out.high > 700) {
      return wrong(entry_.location,
                   "has limits that are too great: those of loguniform are logarithms, as on Azure ML");
    }
    if ((out.kind == SpreadKind::normal || out.kind == SpreadKind::lognormal) && out.high <= 0)
      return wrong(entry_.location, "has a sigma that is not above 0");
    if (out.kind == SpreadKind::randint && (out.high < 1 || out.high != std::floor(out.high))) {
      return wrong(entry_.location, "has an upper that is not a whole number, 1 or more");
    }
    return {};
  }

  [[nodiscard]] Result<void> check_keys(std::initializer_list<std::string_view> known) const {
    for (const YamlEntry& entry : entry_.value.entries) {
      if (entry.key == "type" || std::ranges::find(known, entry.key) != known.end()) continue;
      return wrong(entry.location, concat({"has an unknown key ", quote(entry.key)}));
    }
    return {};
  }

  std::string_view file_;
  const YamlEntry& entry_;
};

}  // namespace

double normal_quantile(double u) noexcept {
  // Bisection on the distribution function: exact to the last bit of erfc, and there are few values.
  double low = -40;
  double high = 40;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    const double share = 0.5 * std::erfc(-middle / std::numbers::sqrt2);
    (share < u ? low : high) = middle;
  }
  return high;
}

std::string Parameter::at(double u) const {
  if (kind == Kind::choice) {
    const auto index = static_cast<std::size_t>(u * static_cast<double>(values.size()));
    return values[std::min(index, values.size() - 1)];
  }
  double value = 0;
  const double inside = std::clamp(u, 0x1p-53, 1 - 0x1p-53);
  if (kind == Kind::randint) value = std::min(std::floor(u * high), high - 1);
  else if (kind == Kind::uniform || kind == Kind::loguniform) value = low + u * (high - low);
  else value = low + high * normal_quantile(inside);
  if (kind == Kind::loguniform || kind == Kind::lognormal) value = std::exp(value);
  if (quantum > 0) value = std::nearbyint(value / quantum) * quantum;
  return text_of(value, quantum > 0);
}

Result<std::vector<Parameter>> read_search_space(std::string_view file, const YamlValue& space) {
  if (space.kind != YamlKind::map || space.entries.empty()) {
    return error_at(file, space.location, "search_space is empty: write a parameter's name, and its type below it");
  }
  std::vector<Parameter> out;
  for (const YamlEntry& entry : space.entries) {
    auto parameter = ParameterReader(file, entry).read();
    if (!parameter) return parameter.error();
    out.push_back(std::move(*parameter));
  }
  return out;
}

}  // namespace amldist::run
