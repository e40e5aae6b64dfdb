#include "aml_dist/check_output.hpp"

#include <unistd.h>

#include <cstdlib>

#include "core/text.hpp"
#include "fabric/report_json.hpp"

namespace amldist::tools {
namespace {

using fabric::Verdict;
using text::concat;

constexpr std::size_t id_width = 13;

std::string_view colour_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "\033[32m";
    case Verdict::warn:
      return "\033[33m";
    case Verdict::fail:
      return "\033[1;31m";
    case Verdict::skip:
      break;
  }
  return "\033[2m";
}

std::string word_for(Verdict verdict, bool colour) {
  const std::string word = concat({to_string(verdict)});
  return colour ? concat({colour_of(verdict), word, "\033[0m"}) : word;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

bool wants_colour() {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return (no_colour == nullptr || *no_colour == '\0') && !dumb && ::isatty(STDOUT_FILENO) == 1;
}

std::string to_table(const NodeVerification& node, bool colour, bool quiet) {
  std::string out = concat({node.host, ": ", word_for(node.report.verdict(), colour), " (policy ",
                            fabric::to_string(node.report.policy), ")\n"});
  for (const fabric::Check& check : node.report.checks) {
    const bool well = check.verdict == Verdict::pass || check.verdict == Verdict::skip;
    if (quiet && well) continue;
    out += concat({"  ", word_for(check.verdict, colour), "  ", padded(check.id, id_width), " ", check.evidence, "\n"});
    if (!well && !check.remedy.empty()) out += concat({"        ", padded("", id_width), " -> ", check.remedy, "\n"});
  }
  return out;
}

std::string to_json(const NodeVerification& node) {
  const fabric::FabricSettings& settings = node.settings;
  const std::string hca = settings.ports.empty() ? "null" : fabric::json_text(fabric::exact_selection(settings.ports));
  const std::string index = settings.gid_index ? std::to_string(*settings.gid_index) : "null";
  return concat({"{\n  \"node\": ", fabric::json_text(node.host),
                 ",\n  \"policy\": ", fabric::json_text(fabric::to_string(node.report.policy)),
                 ",\n  \"verdict\": ", fabric::json_text(to_string(node.report.verdict())),
                 ",\n  \"checks\": ", fabric::to_json(node.report.checks, 4), ",\n  \"nccl_ib_hca\": ", hca,
                 ",\n  \"nccl_ib_gid_index\": ", index, "\n}"});
}

}  // namespace amldist::tools
