// The administrator's table: the meaning of Azure ML's instance types and computes on this cluster. Its format is in
// docs/azure-ml.md and contrib/plugstack/instance-types.yml.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/provision_policy.hpp"
#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::run {

/// One line of the table.
struct Hardware {
  std::string name;
  commands::SlurmOptions options;  ///< partition, constraint, GPUs and whatever else of sbatch
  std::optional<unsigned> gpus_per_node;
  std::string infiniband;  ///< require, prefer, off; empty: the site's policy
};

/// An environment that Azure ML has registered, as this cluster has it.
struct RegisteredEnvironment {
  std::string name;    ///< NAME, or NAME:VERSION
  YamlValue value;     ///< a map as below `environment`
  std::string folder;  ///< of the table
};

/// A data asset that Azure ML has registered.
struct DataAsset {
  std::string name;  ///< NAME, or NAME:VERSION
  std::string path;
};

struct SiteTable {
  std::string file;  ///< empty if there is no table
  std::vector<Hardware> instance_types;
  std::vector<Hardware> computes;
  std::vector<RegisteredEnvironment> environments;
  std::vector<DataAsset> data;
  ImagePolicy images;
  CondaPolicy conda;
  bool snapshots = false;  ///< the code folder of each job file is copied, as with --snapshot
  std::string downloads;   ///< a folder that the nodes share; empty: data behind https: is not available
};

/// The table's default path: $AMLDIST_INSTANCE_TYPES, else /etc/aml-dist/instance-types.yml.
[[nodiscard]] std::string default_site_table();

/// Reads the table. A missing default file is an empty table; `must_exist`: a file that the user named must exist.
[[nodiscard]] Result<SiteTable> read_site_table(const std::string& file, bool must_exist);

/// A name in the table, without regard to case. nullopt if there is no table. Errors: not_found, with the nearest name.
[[nodiscard]] Result<std::optional<Hardware>> find_instance_type(const SiteTable& table, std::string_view name);

/// The same for a compute, which the table need not list.
[[nodiscard]] std::optional<Hardware> find_compute(const SiteTable& table, std::string_view name);

/// The line for "azureml:NAME:VERSION" or "azureml:NAME@latest": of that version, else of the name; nullptr: none.
[[nodiscard]] const RegisteredEnvironment* find_environment(const SiteTable& table, std::string_view reference);
[[nodiscard]] const DataAsset* find_asset(const SiteTable& table, std::string_view reference);

}  // namespace amldist::run
