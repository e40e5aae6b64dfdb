// The files that an administrator writes, each examined as the product reads it, and beyond: whether what they name is
// there, and whether a setting can have an effect.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aml_dist/check_config/finding.hpp"

namespace amldist::tools {

enum class FileKind { plugstack, site, skus, instance_types };

/// By its name ("skus" in it, .yml), then by whether it loads the plugin; else it is the file of config=.
[[nodiscard]] FileKind kind_of_file(const std::string& path);

/// plugstack.conf, the files that it includes, and the file that config= names there. False: it does not exist.
bool examine_plugstack(const std::string& path, Findings& findings);

/// The file of config=. `installed`: a line of plugstack.conf names it, so it must already be root's alone.
/// `arguments` are those of that line: they win over the file.
bool examine_site_file(const std::string& path, bool installed, std::span<const std::string> arguments,
                       Findings& findings);

bool examine_sku_table(const std::string& path, Findings& findings);

/// The table of aml-run in use: $AMLDIST_INSTANCE_TYPES, else the one in /etc/aml-dist.
[[nodiscard]] std::string instance_types_path();
bool examine_instance_types(const std::string& path, Findings& findings);

}  // namespace amldist::tools
