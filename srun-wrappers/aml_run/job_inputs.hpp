// Inputs and outputs of a job file, and what stands for ${{inputs.x}} and ${{outputs.y}}.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/expressions.hpp"
#include "aml_run/plan.hpp"
#include "core/result.hpp"

namespace amldist::run {

/// Whether `path` is in a cloud: it begins with a scheme that is not file:.
[[nodiscard]] bool is_remote(std::string_view path);

/// A local path of the file ("./data", "file:///data") made absolute from the job file's folder.
[[nodiscard]] std::string local_path(const std::string& folder, std::string_view path);

/// The bindings of one job file.
class Bindings {
 public:
  Bindings(std::string file, std::string folder) : file_(std::move(file)), folder_(std::move(folder)) {}

  /// Takes `inputs` and `outputs`. Files that an input names must be there, if the command uses it.
  [[nodiscard]] Result<void> read(const YamlValue& job);

  /// `text` with its expressions replaced; `location` is where it stands.
  [[nodiscard]] Result<std::string> in_command(std::string_view text, const SourceLocation& location);
  [[nodiscard]] Result<std::string> in_text(std::string_view text, const SourceLocation& location);

  [[nodiscard]] const std::vector<OutputFolder>& outputs() const noexcept { return outputs_; }
  /// What has no effect: inputs that nothing uses, cloud paths of outputs.
  [[nodiscard]] std::vector<Ignored> ignored() const;

 private:
  /// An input: what stands for it, or why it cannot be had.
  struct Input {
    SourceLocation location;
    Result<Replacement> replacement;
  };

  [[nodiscard]] Result<Replacement> look_up(std::string_view expression);
  [[nodiscard]] Input read_input(const YamlEntry& entry) const;
  [[nodiscard]] Result<Replacement> read_path(const YamlEntry& entry, const YamlValue& path) const;
  [[nodiscard]] Result<void> read_output(const YamlEntry& entry);
  [[nodiscard]] Error wrong_name(const YamlEntry& entry) const;

  std::string file_;
  std::string folder_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::set<std::string, std::less<>> used_;
  std::vector<OutputFolder> outputs_;
  std::vector<Ignored> ignored_;
};

}  // namespace amldist::run
