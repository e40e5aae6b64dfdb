// `aml-dist check-config`: the administrator's files, examined before they are installed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aml_dist/check_config/site_files.hpp"
#include "aml_dist/command.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "fabric/sku/sku_table.hpp"
#include "launch/site/plugstack.hpp"
#include "shared/exit_status.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using nlohmann::ordered_json;
using text::concat;

struct Options {
  std::vector<std::string> files;
  std::string kind;
  bool json = false;
};

constexpr std::array<std::string_view, 4> kind_names = {"plugstack", "site", "skus", "instance-types"};
constexpr std::size_t longest_shown = 300;

FileKind kind_of(const Options& options, const std::string& file) {
  const auto named = std::ranges::find(kind_names, options.kind);
  return named == kind_names.end() ? kind_of_file(file) : static_cast<FileKind>(named - kind_names.begin());
}

bool examine(FileKind kind, const std::string& file, Findings& findings) {
  switch (kind) {
    case FileKind::plugstack:
      return examine_plugstack(file, findings);
    case FileKind::site:
      return examine_site_file(file, false, {}, findings);
    case FileKind::skus:
      return examine_sku_table(file, findings);
    case FileKind::instance_types:
      return examine_instance_types(file, findings);
  }
  return false;
}

std::string_view name_of(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

std::size_t count(const Findings& findings, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(findings.found(), severity, &Finding::severity));
}

std::string counted(std::size_t number, std::string_view what) {
  return concat({std::to_string(number), " ", what, number == 1 ? "" : "s"});
}

void print_text(const Findings& findings) {
  for (const std::string& file : findings.files()) {
    const bool fine = std::ranges::none_of(findings.found(), [&](const Finding& each) { return each.file == file; });
    if (fine) std::printf("%s: fine\n", text::printable(file, longest_shown).c_str());
  }
  for (const Finding& each : findings.found()) {
    const std::string line = each.line == 0 ? "" : concat({":", std::to_string(each.line)});
    const std::string remedy = each.remedy.empty() ? "" : concat({": ", each.remedy});
    std::printf("%s%s: %s: %s%s\n", text::printable(each.file, longest_shown).c_str(), line.c_str(),
                std::string(name_of(each.severity)).c_str(), text::printable(each.problem, 2 * longest_shown).c_str(),
                text::printable(remedy, longest_shown).c_str());
  }
  std::printf("%s, %s, %s\n", counted(findings.files().size(), "file").c_str(),
              counted(count(findings, Severity::error), "error").c_str(),
              counted(count(findings, Severity::warning), "warning").c_str());
}

void print_json(const Findings& findings) {
  ordered_json out = {{"schema", 1}, {"files", findings.files()}, {"findings", ordered_json::array()}};
  for (const Finding& each : findings.found()) {
    out["findings"].push_back({{"severity", name_of(each.severity)},
                               {"file", each.file},
                               {"line", each.line == 0 ? ordered_json(nullptr) : ordered_json(each.line)},
                               {"problem", each.problem},
                               {"remedy", each.remedy}});
  }
  std::fputs(commands::json_text(out).c_str(), stdout);
}

int check_config(const Options& options) {
  Findings findings;
  for (const std::string& file : options.files) {
    if (examine(kind_of(options, file), file, findings)) continue;
    std::fprintf(stderr, "aml-dist: %s does not exist\n", text::printable(file, longest_shown).c_str());
    return commands::exit_not_found;
  }
  if (options.files.empty()) {
    examine_plugstack(launch::plugstack_path(), findings);
    examine_sku_table(fabric::site_sku_table, findings);
    examine_instance_types(instance_types_path(), findings);
  }
  if (findings.files().empty()) {
    std::fprintf(stderr, "aml-dist: no file to examine: there is no %s, %s or %s\n", launch::plugstack_path().c_str(),
                 fabric::site_sku_table, instance_types_path().c_str());
    return commands::exit_skipped;
  }
  if (options.json) print_json(findings);
  else print_text(findings);
  return count(findings, Severity::error) == 0 ? commands::exit_done : commands::exit_failed;
}

}  // namespace

Command add_check_config(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("check-config", "Examine the administrator's files for mistakes");
  command->add_option("FILE", options->files, "the files; default: those in use on this machine");
  command->add_option("--as", options->kind, "what FILE is; default: by name and content")
      ->check(CLI::IsMember(std::vector<std::string>(kind_names.begin(), kind_names.end())))
      ->needs("FILE");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Examples:\n"
      "  aml-dist check-config\n"
      "  aml-dist check-config ./plugstack.conf ./site.conf\n"
      "\n"
      "Without FILE: plugstack.conf, the file that its config= names, the table of\n"
      "SKUs and aml-run's table of instance types. Warnings do not fail.\n"
      "\n"
      "Exit status: 0 no mistakes; 1 there are mistakes; 3 no file to examine;\n"
      "others as in aml_dist(7).");
  return {command, [options] { return check_config(*options); }};
}

}  // namespace amldist::tools
