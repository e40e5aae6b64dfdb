#include "fabric/report/report_json.hpp"

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t most_checks = 64;

/// One field of a line, without tabs and newlines.
std::string field(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  return out;
}

/// A value in quotes, escaped for JSON; non-ASCII bytes become \u00NN.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += "\\u00";
      append_hex(out, byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// Writes the fields of one object, with `separator` between them.
class FieldWriter {
 public:
  explicit FieldWriter(std::string_view separator) : separator_(separator) {}

  void operator()(std::string_view name, std::string_view value) { put(name, json_text(value)); }
  void operator()(std::string_view name, const std::optional<std::string>& value) {
    put(name, value ? json_text(*value) : "null");
  }
  void operator()(std::string_view name, const std::optional<std::uint32_t>& value) {
    put(name, value ? std::to_string(*value) : "null");
  }
  void operator()(std::string_view name, const std::vector<Check>& checks) {
    std::string list;
    for (const Check& check : checks) {
      FieldWriter fields(", ");
      visit_fields(check, fields);
      list += concat({list.empty() ? "\n    {" : ",\n    {", fields.text(), "}"});
    }
    put(name, concat({"[", list, "\n  ]"}));
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void put(std::string_view name, std::string_view value) {
    text_ += concat({text_.empty() ? "" : separator_, json_text(name), ": ", value});
  }

  std::string_view separator_;
  std::string text_;
};

}  // namespace

std::string to_json(const NodeReport& node) {
  FieldWriter fields(",\n  ");
  visit_fields(node, fields);
  return concat({"{\n  ", fields.text(), "\n}"});
}

std::string to_lines(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    out += concat({to_string(check.verdict), "\t", field(check.id), "\t", field(check.evidence), "\t",
                   field(check.remedy), "\n"});
  }
  return out;
}

Result<std::vector<Check>> checks_from_lines(std::string_view text) {
  std::vector<Check> checks;
  for (const std::string_view line : text::split(text, '\n')) {
    if (line.empty()) continue;
    const auto fields = text::split(line, '\t');
    const auto verdict = verdict_from_name(fields.front());
    if (fields.size() != 4 || !verdict || checks.size() == most_checks) {
      return Error{Errc::invalid_argument, concat({"not the line of a check: ", text::quote(line)})};
    }
    checks.push_back({printable(fields[1], 32), *verdict, printable(fields[2], 512), printable(fields[3], 512)});
  }
  return checks;
}

}  // namespace amldist::fabric
