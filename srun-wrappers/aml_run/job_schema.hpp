// Every key of Azure ML's command job (CLI v2), and what becomes of it here. The single source: job files are checked
// against it, `aml-run --list-keys` prints it, docs/azure-ml.md is compared with it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

enum class KeyHandling {
  translated,  ///< has an effect
  ignored,     ///< has no effect, and is named with the reason
  refused,     ///< a job that needs it cannot be run here
};

enum class ValueType {
  text,       ///< a scalar
  count,      ///< a whole number, 1 or more
  any_count,  ///< a whole number, 0 or more
  truth,      ///< true or false
  map,        ///< further keys of the table, or free ones ("*")
  texts,      ///< a list of scalars
  text_or_texts,
  text_or_map,
  anything,
};

struct SchemaKey {
  std::string_view path;  ///< "distribution.type"; "*" stands for any name
  ValueType type;
  KeyHandling handling;
  std::string_view becomes;       ///< what it turns into, or why it is ignored or refused: a clause without a full stop
  std::string_view allowed = {};  ///< the permitted values, separated by blanks; empty: any
};

[[nodiscard]] std::span<const SchemaKey> job_schema() noexcept;

/// A key of the job file that has no effect.
struct Ignored {
  std::string path;
  SourceLocation location;
  std::string why;
};

/// Checks a job file against the table. Errors name the location, and the nearest valid key or the permitted values.
[[nodiscard]] Result<std::vector<Ignored>> check_job(std::string_view file, const YamlValue& root);

/// "translated", "ignored", "refused".
[[nodiscard]] std::string_view to_string(KeyHandling handling) noexcept;

}  // namespace amldist::run
