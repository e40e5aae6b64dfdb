// Inputs and outputs of a job file, and the values of ${{inputs.x}} and ${{outputs.y}}.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aml_run/expressions.hpp"
#include "aml_run/plan.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// Whether `path` is in a cloud: it begins with a scheme that is not file:.
[[nodiscard]] bool is_remote(std::string_view path);

/// A local path of the file ("./data", "file:///data") made absolute, relative to the job file's folder.
[[nodiscard]] std::string local_path(const std::string& folder, std::string_view path);

/// The bindings of one job file.
class Bindings {
 public:
  /// `file` is named in messages; paths are relative to `folder`; outputs without a path are placed below `run_folder`,
  /// which warnings quote.
  Bindings(std::string file, std::string folder, std::string run_folder)
      : file_(std::move(file)), folder_(std::move(folder)), run_folder_(std::move(run_folder)) {}

  /// Takes `inputs` and `outputs`. Files that an input names must exist if the command uses it.
  [[nodiscard]] Result<void> read(const YamlValue& job);

  /// A text for bash with the values of its expressions; `location` is its place. What bash would do with a value is
  /// kept as a warning, or prevented with `literally`.
  [[nodiscard]] Result<FilledText> in_command(std::string_view text, const SourceLocation& location, bool literally);
  /// The same for a text that no shell reads (an environment variable).
  [[nodiscard]] Result<FilledText> in_text(std::string_view text, const SourceLocation& location);
  /// Inputs at or below these paths need not exist yet: other jobs make them.
  void expect_later(const std::vector<std::string>& paths) { made_later_ = paths; }
  /// The whole file, in which a message finds the key of a value.
  void look_for_keys_in(const YamlValue* root) { root_ = root; }
  void set_run_folder(const std::string& folder) { run_folder_ = folder; }
  /// Further values, which the job learns when it runs: search_space.x.
  void add(std::string expression, Replacement replacement) {
    further_.emplace(std::move(expression), std::move(replacement));
  }

  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Files behind https: are kept below this folder.
  void fetch_to(const std::string& folder) { downloads_ = folder; }
  /// Where a data asset of Azure ML ("azureml:NAME:VERSION") is on this cluster; nullopt: it is not there.
  using AssetPath = std::function<std::optional<std::string>(std::string_view reference)>;
  void know_assets(AssetPath path_of) { path_of_asset_ = std::move(path_of); }
  /// The inputs and outputs that the command uses.
  [[nodiscard]] std::vector<Download> downloads() const;
  /// Local paths of inputs that the command uses.
  [[nodiscard]] std::vector<std::string> used_paths() const;

  [[nodiscard]] const std::vector<OutputFolder>& outputs() const noexcept { return outputs_; }
  /// What has no effect: inputs that nothing uses, cloud paths of outputs.
  [[nodiscard]] std::vector<Ignored> ignored() const;

 private:
  /// An input: its value, or why it is not available.
  struct Input {
    SourceLocation location;
    Result<Replacement> replacement;
  };

  using Found = std::map<std::string, Replacement, std::less<>>;

  [[nodiscard]] Result<Replacement> look_up(std::string_view expression);
  [[nodiscard]] Result<Found> find_all(std::string_view text, const SourceLocation& location);
  [[nodiscard]] Result<FilledText> finish(std::string_view text, const SourceLocation& location, const Found& found,
                                          bool literally) const;
  void warn(std::string_view text, const SourceLocation& location, const Found& found);
  [[nodiscard]] Input read_input(const YamlEntry& entry);
  [[nodiscard]] Result<Replacement> read_path(const YamlEntry& entry, const YamlValue& path);
  [[nodiscard]] Result<void> read_output(const YamlEntry& entry);
  [[nodiscard]] Error wrong_name(const YamlEntry& entry) const;

  std::string file_;
  std::string folder_;
  std::string run_folder_;
  std::vector<std::string> made_later_;
  const YamlValue* root_ = nullptr;
  AssetPath path_of_asset_;
  std::string downloads_;
  std::map<std::string, Download, std::less<>> fetched_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::set<std::string, std::less<>> used_;
  std::vector<OutputFolder> outputs_;
  std::vector<Ignored> ignored_;
  Found further_;
  std::vector<std::string> warnings_;
};

}  // namespace amldist::run
