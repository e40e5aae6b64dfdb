// Reads options with CLI11, for commands that pass Slurm's options on: long and short forms, values in the same word or
// the next, our own sentences for errors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace amldist::commands {

class OptionParser {
 public:
  using Take = std::function<void(const std::string& value)>;

  OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;
  ~OptionParser();

  /// An option with a value, called each time that it is given. `names` as CLI11 writes them: "-N,--nodes".
  void add_value(const std::string& names, const Take& take);
  /// The same, but it can be given only once.
  void add_text(const std::string& names, std::string& to);
  /// An option without a value.
  void add_switch(const std::string& names, const Take& take);
  /// Every option of sbatch.
  void add_slurm_options(SlurmOptions& taken);

  /// Reads the words in their order; returns those that are neither options nor their values. Errors: invalid_argument,
  /// in one sentence.
  [[nodiscard]] Result<std::vector<std::string>> parse(std::vector<std::string> words);

  /// Names of all options, without dashes.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::string given_twice_;
};

/// One word that is an option of sbatch: "--exclusive", "-N2". Errors: invalid_argument; not_found, sbatch has no such
/// option.
[[nodiscard]] Result<SlurmOptions> read_slurm_option(const std::string& word);

}  // namespace amldist::commands
