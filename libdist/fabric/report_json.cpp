#include "fabric/report_json.hpp"

#include "core/text.hpp"

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

}  // namespace

std::string json_text(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += "\\u00";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string to_json(const Check& check) {
  return concat({"{\"id\": ", json_text(check.id), ", \"verdict\": ", json_text(to_string(check.verdict)),
                 ", \"evidence\": ", json_text(check.evidence), ", \"remedy\": ", json_text(check.remedy), "}"});
}

std::string to_json(const std::vector<Check>& checks, std::size_t indent) {
  std::string out = "[";
  for (std::size_t i = 0; i < checks.size(); ++i) {
    out += concat({i == 0 ? "\n" : ",\n", std::string(indent, ' '), to_json(checks[i])});
  }
  return out + "\n" + std::string(indent >= 2 ? indent - 2 : 0, ' ') + "]";
}

std::string to_json(std::string_view host, const Report& report, const FabricSettings& settings) {
  const std::string hca = settings.ports.empty() ? "null" : json_text(exact_selection(settings.ports));
  const std::string index = settings.gid_index ? std::to_string(*settings.gid_index) : "null";
  return concat({"{\n  \"node\": ", json_text(host), ",\n  \"policy\": ", json_text(to_string(report.policy)),
                 ",\n  \"verdict\": ", json_text(to_string(report.verdict())),
                 ",\n  \"checks\": ", to_json(report.checks, 4), ",\n  \"nccl_ib_hca\": ", hca,
                 ",\n  \"nccl_ib_gid_index\": ", index, "\n}"});
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
