#include "aml_dist/check_config/site_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include "aml_dist/check_config/policy_checks.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/topology_file.hpp"
#include "fabric/sku/sku_table.hpp"
#include "launch/site/plugstack.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using text::quote;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Why root would not take the file as the site's policy; nullopt: it would.
std::optional<std::string> untrusted(const std::string& path) {
  const auto content = read_whole_file_of(path, launch::longest_config, 0);
  return content ? std::nullopt : std::optional(content.error().message);
}

/// Lines that set what an earlier line has set: the later one wins in silence.
void find_repetitions(std::string_view content, Findings& findings) {
  std::map<std::string, std::size_t, std::less<>> first;
  std::size_t number = 0;
  for (const std::string_view line : text::split(content, '\n')) {
    ++number;
    const auto setting = launch::config_lines(line);
    if (setting.empty()) continue;
    const std::string name(text::trim(setting.front().substr(0, setting.front().find('='))));
    const auto [earlier, is_new] = first.emplace(name, number);
    if (!is_new)
      findings.warn(number, concat({quote(name), " is set in line ", std::to_string(earlier->second), " already"}),
                    "this line wins: remove one of them");
  }
}

void examine_arguments(const launch::PluginLine& line, Findings& findings) {
  launch::SitePolicy policy = launch::SitePolicy::defaults();
  for (const std::string& argument : line.arguments) {
    const std::string_view words = argument;
    for (const std::string& complaint : launch::apply_arguments(policy, {&words, 1}))
      findings.error(line.number, complaint);
  }
}

void examine_line(const launch::PluginLine& line, Findings& findings) {
  if (line.is_optional) {
    findings.warn(line.number, "the plugin is loaded as 'optional': Slurm then ignores every refusal and runs the job",
                  "write 'required'");
  }
  if (line.plugin.starts_with('/') && !exists(line.plugin)) {
    findings.error(
        line.number,
        concat({quote(line.plugin), " does not exist: no srun, sbatch or salloc works, and ", "slurmd does not start"}),
        "install the plugin before this line");
  }
  examine_arguments(line, findings);
}

/// The file that the line's config= or config_optional= names.
void follow_config(const launch::PluginLine& line, Findings& findings) {
  const std::vector<std::string_view> arguments(line.arguments.begin(), line.arguments.end());
  launch::SitePolicy named = launch::SitePolicy::defaults();
  static_cast<void>(launch::apply_arguments(named, arguments));
  std::vector<std::string> told;
  const launch::SitePolicy whole = launch::load_policy(arguments, told);
  if (named.config_file.empty()) {
    if (!whole.refusal.empty()) findings.error(line.number, whole.refusal);
    check_policy(whole, findings);
    return;
  }
  if (examine_site_file(named.config_file, true, line.arguments, findings) || named.config_is_optional) return;
  findings.error(line.number,
                 concat({"config=", named.config_file, " does not exist: steps with --aml-dist are refused"}),
                 "create it, or write config_optional= if it may be absent");
}

/// The line that an entry of the table comes from: what follows the last colon of its source.
std::size_t line_of(const fabric::Sku& sku) {
  return text::to_number(std::string_view(sku.source).substr(sku.source.rfind(':') + 1), 1'000'000).value_or(0);
}

/// Lines that are right by themselves, and name a file that is not there or a name that an earlier line takes.
void check_skus_of(const fabric::SkuTable& table, Findings& findings) {
  const std::vector<fabric::Sku> all = table.all();
  for (const fabric::Sku& sku : all) {
    const auto taken = table.find(sku.name);
    if (taken && taken->source != sku.source)
      findings.warn(
          line_of(sku),
          concat({quote(sku.name), " is matched by line ", std::to_string(line_of(*taken)), ", which comes first"}),
          "put the narrower name first, or remove one of them");
    if (sku.topology.empty()) continue;
    const auto content = read_whole_file(sku.topology, fabric::longest_topology);
    const auto read =
        content ? fabric::parse_topology(*content) : Result<std::vector<fabric::PlacedFunction>>(content.error());
    if (!read)
      findings.error(line_of(sku), concat({"topology=", sku.topology, " cannot be used: ", read.error().message}),
                     "if only the compute nodes have it, run this command on one of them");
  }
}

}  // namespace

FileKind kind_of_file(const std::string& path) {
  const std::string name = text::to_lower(file_name(path));
  if (name.ends_with(".yml") || name.ends_with(".yaml")) return FileKind::instance_types;
  if (name.find("skus") != std::string::npos) return FileKind::skus;
  const auto content = read_whole_file(path, launch::longest_config);
  const bool loads = content && !launch::parse_plugstack(*content).lines.empty();
  return loads || name.starts_with("plugstack") ? FileKind::plugstack : FileKind::site;
}

bool examine_plugstack(const std::string& path, Findings& findings) {
  if (!exists(path)) return false;
  std::size_t loads = 0;
  const std::vector<launch::PlugstackFile> files = launch::read_plugstack(path);
  for (const launch::PlugstackFile& file : files) {
    findings.begin(file.path);
    if (!file.fault.empty()) findings.error(0, concat({"cannot be read: ", file.fault}));
    for (const launch::PluginLine& line : file.lines) {
      if (++loads > 1) findings.error(line.number, "the plugin is loaded a second time", "keep one line");
      examine_line(line, findings);
    }
  }
  if (loads == 0) {
    findings.about(path);
    findings.warn(0, "no line loads spank_aml_dist.so: --aml-dist is unknown on this machine",
                  "add 'required /PREFIX/lib/slurm/spank_aml_dist.so'");
  }
  for (const launch::PlugstackFile& file : files) {
    for (const launch::PluginLine& line : file.lines) {
      findings.about(file.path);
      follow_config(line, findings);
    }
  }
  return true;
}

bool examine_site_file(const std::string& path, bool installed, std::span<const std::string> arguments,
                       Findings& findings) {
  if (!exists(path)) return false;
  findings.begin(path);
  const auto content = read_whole_file(path, launch::longest_config);
  if (!content) {
    findings.error(0, concat({"cannot be read: ", content.error().message}), "use a regular file of at most 64 KiB");
    return true;
  }
  const auto distrust = untrusted(path);
  if (distrust && installed)
    findings.error(0, concat({*distrust, ": steps with --aml-dist are refused"}), "chown root, chmod 644");
  if (distrust && !installed) findings.warn(0, *distrust, "once installed it must be root's, mode 644");
  launch::SitePolicy policy = launch::SitePolicy::defaults();
  for (const launch::ConfigFault& fault : launch::apply_lines(policy, *content)) {
    findings.error(fault.line, concat({quote(fault.text), " ", fault.wrong}));
  }
  find_repetitions(*content, findings);
  const std::vector<std::string_view> words(arguments.begin(), arguments.end());
  static_cast<void>(launch::apply_arguments(policy, words));
  check_policy(policy, findings);
  return true;
}

bool examine_sku_table(const std::string& path, Findings& findings) {
  if (!exists(path)) return false;
  findings.begin(path);
  const auto content = read_whole_file(path, launch::longest_config);
  if (!content) {
    findings.error(0, concat({"cannot be read: ", content.error().message}), "use a regular file of at most 64 KiB");
    return true;
  }
  fabric::SkuTable table;
  for (const fabric::SkuFault& fault : table.add(*content, path)) findings.error(fault.line, fault.wrong);
  check_skus_of(table, findings);
  return true;
}

}  // namespace amldist::tools
