#include "aml_dist/keep/srun_line.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using commands::Argument;
using commands::SlurmOption;
using text::concat;

/// srun's options that sbatch does not have.
constexpr std::array srun_options = {SlurmOption{"accel-bind"},
                                     SlurmOption{"async", '\0', Argument::none},
                                     SlurmOption{"bcast", '\0', Argument::optional},
                                     SlurmOption{"bcast-exclude"},
                                     SlurmOption{"compress", '\0', Argument::optional},
                                     SlurmOption{"cpu-bind"},
                                     SlurmOption{"disable-status", 'X', Argument::none},
                                     SlurmOption{"epilog"},
                                     SlurmOption{"exact", '\0', Argument::none},
                                     SlurmOption{"external-launcher", '\0', Argument::none},
                                     SlurmOption{"het-group"},
                                     SlurmOption{"immediate", 'I', Argument::optional},
                                     SlurmOption{"interactive", '\0', Argument::none},
                                     SlurmOption{"jobid"},
                                     SlurmOption{"kill-on-bad-exit", 'K', Argument::optional},
                                     SlurmOption{"label", 'l', Argument::none},
                                     SlurmOption{"mpi"},
                                     SlurmOption{"msg-timeout"},
                                     SlurmOption{"multi-prog", '\0', Argument::none},
                                     SlurmOption{"no-allocate", 'Z', Argument::none},
                                     SlurmOption{"open-mode"},
                                     SlurmOption{"overcommit", 'O', Argument::none},
                                     SlurmOption{"overlap", '\0', Argument::none},
                                     SlurmOption{"oversubscribe", 's', Argument::none},
                                     SlurmOption{"preserve-env", 'E', Argument::none},
                                     SlurmOption{"prolog"},
                                     SlurmOption{"pty", '\0', Argument::none},
                                     SlurmOption{"quit-on-interrupt", 'q', Argument::none},
                                     SlurmOption{"relative", 'r'},
                                     SlurmOption{"send-libs", '\0', Argument::optional},
                                     SlurmOption{"slurmd-debug"},
                                     SlurmOption{"task-epilog"},
                                     SlurmOption{"task-prolog"},
                                     SlurmOption{"threads", 'T'},
                                     SlurmOption{"unbuffered", 'u', Argument::none},
                                     SlurmOption{"wait", 'W'},
                                     SlurmOption{"whole", '\0', Argument::none},
                                     SlurmOption{"aml-dist"}};

constexpr std::uint64_t most_tasks = 1U << 24U;

Error wrong(std::string sentence) { return {Errc::invalid_argument, concat({"keep: ", sentence})}; }

bool begins_with(const SlurmOption& option, std::string_view beginning) {
  return option.name.starts_with(beginning) ||
         std::ranges::any_of(commands::other_names_of(option),
                             [beginning](std::string_view other) { return other.starts_with(beginning); });
}

/// The only option whose name begins with this; nullptr if no name or several names do: srun refuses both.
const SlurmOption* find_abbreviated(std::string_view beginning) {
  std::vector<const SlurmOption*> found;
  const auto look = [&](const SlurmOption& option) {
    const bool is_new = std::ranges::find(found, option.name, &SlurmOption::name) == found.end();
    if (is_new && begins_with(option, beginning)) found.push_back(&option);
  };
  std::ranges::for_each(srun_options, look);
  std::ranges::for_each(commands::slurm_options(), look);
  if (found.size() > 1)  // of those for whole jobs srun has but a few
    std::erase_if(found, [](const SlurmOption* option) { return option->scope == commands::Scope::job; });
  return found.size() == 1 ? found.front() : nullptr;
}

const SlurmOption* find_option(std::string_view name) {
  const auto* const own = std::ranges::find(srun_options, name, &SlurmOption::name);
  if (own != srun_options.end()) return own;
  const SlurmOption* const known = commands::find_slurm_option(name);
  return known != nullptr ? known : find_abbreviated(name);
}

const SlurmOption* find_letter(char letter) {
  const auto* const own = std::ranges::find(srun_options, letter, &SlurmOption::letter);
  if (own != srun_options.end()) return own;
  const auto options = commands::slurm_options();
  const auto found = std::ranges::find(options, letter, &SlurmOption::letter);
  return found == options.end() ? nullptr : &*found;
}

/// Reads the options in front of a command as getopt_long(3) with "+" does, which takes shortened names. An option that
/// is not known here, of another plugin, has its value behind '='.
class Scanner {
 public:
  Scanner(const std::vector<std::string>& words, commands::SlurmOptions& known) : words_(words), known_(known) {}

  /// The index of the command's first word. `others`: srun, and the options but for --nodes, which keep gives itself.
  std::size_t run(std::vector<std::string>& others) {
    others.assign(words_.begin(), words_.begin() + 1);
    while (at_ < words_.size()) {
      const std::string_view word = words_[at_];
      if (word == "--") return at_ + 1;
      if (!word.starts_with('-') || word == "-") return at_;
      const std::size_t first = at_++;
      const auto nodes = word.starts_with("--") ? take_long(word) : take_letters(word);
      if (!nodes) others.insert(others.end(), place_of(first), place_of(at_));
      else if (*nodes > 1) others.emplace_back(word.substr(0, *nodes));
    }
    return at_;
  }

 private:
  [[nodiscard]] std::vector<std::string>::const_iterator place_of(std::size_t index) const {
    return words_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  /// Where --nodes begins in the word, if it is that.
  using Nodes = std::optional<std::size_t>;

  Nodes take_long(std::string_view word) {
    const std::string_view text = word.substr(2);
    const auto equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const SlurmOption* const option = find_option(name);
    if (equals != std::string_view::npos) return note(option, name, std::string(text.substr(equals + 1)), 0);
    const bool takes_next = option != nullptr && option->argument == Argument::required && at_ < words_.size();
    return note(option, name, takes_next ? std::optional(words_[at_++]) : std::nullopt, 0);
  }

  Nodes take_letters(std::string_view word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const SlurmOption* const option = find_letter(word[i]);
      if (option == nullptr) continue;
      if (option->argument == Argument::none) {
        static_cast<void>(note(option, option->name, std::nullopt, i));
        continue;
      }
      const std::string_view rest = word.substr(i + 1);
      const bool takes_next = rest.empty() && option->argument == Argument::required && at_ < words_.size();
      return note(option, option->name, takes_next ? words_[at_++] : std::string(rest), i);
    }
    return std::nullopt;
  }

  Nodes note(const SlurmOption* option, std::string_view name, std::optional<std::string> value, std::size_t begin) {
    known_.set(option != nullptr ? option->name : name, std::move(value));
    return option != nullptr && option->name == "nodes" ? std::optional(begin) : std::nullopt;
  }

  const std::vector<std::string>& words_;
  commands::SlurmOptions& known_;
  std::size_t at_ = 1;
};

std::optional<std::uint32_t> number_in(std::string_view text) {
  const auto number = text::to_number(text, most_tasks);
  return number && *number > 0 ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// srun's --export with the two variables; without one they travel with all others.
std::optional<std::string> exported(const commands::SlurmOptions& known, const EnvironmentReader& environment) {
  constexpr std::string_view own = "AMLDIST_RESTART,TORCHELASTIC_RESTART_COUNT";
  std::string given(known.value_of("export"));
  if (given.empty()) given = environment("SLURM_EXPORT_ENV").value_or("");
  if (given.empty() || given == "ALL") return std::nullopt;
  return given == "NONE" || given == "NIL" ? std::string(own) : concat({given, ",", own});
}

}  // namespace

Result<SrunLine> SrunLine::parse(const std::vector<std::string>& words) {
  SrunLine line;
  if (words.empty()) return wrong("no step is given: write aml-dist keep [OPTION]... -- srun [OPTION]... COMMAND");
  if (base_name(words.front()) != "srun")
    return wrong(concat({text::quote(words.front()),
                         " is not srun: the step that is kept alive is written as -- srun [OPTION]... COMMAND"}));
  const std::size_t command = Scanner(words, line.known_).run(line.options_);
  line.command_.assign(words.begin() + static_cast<std::ptrdiff_t>(command), words.end());
  for (const std::string_view name : {"nodelist", "nodefile", "exclude", "relative"}) {
    if (line.known_.has(name))
      return wrong(concat(
          {"the srun line has --", name,
           ", but keep chooses the nodes of each start: leave it out, and give --nodelist or --exclude to the job"}));
  }
  for (const std::string_view name : {"het-group", "jobid", "no-allocate", "async", "pty"}) {
    if (line.known_.has(name))
      return wrong(concat({"the srun line has --", name, ", with which keep cannot follow the step: leave it out"}));
  }
  if (line.command_.empty()) return wrong("the srun line has no command");
  if (std::ranges::find(words, ":") != words.end())
    return wrong("a heterogeneous step (':') cannot be kept: its components have nodes of their own");
  if (line.known_.has("nodes") && line.nodes() == 0)
    return wrong(
        concat({"invalid value ", text::quote(line.known_.value_of("nodes")), " for srun's --nodes: give one number"}));
  return line;
}

std::uint32_t SrunLine::nodes() const { return number_in(known_.value_of("nodes")).value_or(0); }

Result<void> SrunLine::share_out(std::uint32_t allocated, std::uint32_t nodes, bool may_shrink,
                                 const EnvironmentReader& environment) {
  const auto given = number_in(known_.value_of("ntasks"));
  auto each = number_in(known_.value_of("ntasks-per-node"));
  if (!each && !given) each = number_in(environment("SLURM_NTASKS_PER_NODE").value_or(""));
  if (each && (!given || *given == *each * nodes)) {
    per_node_ = *each;
    return {};
  }
  const auto of_job = given ? std::nullopt : number_in(environment("SLURM_NTASKS").value_or(""));
  if (of_job && *of_job % allocated == 0) {
    per_node_ = *of_job / allocated;
    return {};
  }
  if (of_job)
    return wrong(concat({"the job's ", text::count(*of_job, "task"), " cannot be shared out among ",
                         text::count(nodes, "node"), ": give --ntasks-per-node in the srun line"}));
  if (given && *given % nodes == 0) per_node_ = *given / nodes;
  else total_ = given.value_or(nodes);
  if (may_shrink && given)
    return wrong(
        "--min-nodes needs srun's --ntasks-per-node in place of --ntasks, which is for a fixed number of nodes");
  return {};
}

bool SrunLine::can_keep_order(std::span<const std::string> nodes) const {
  constexpr std::size_t longest = 120'000;  // Linux takes no argument of more than 128 KiB
  const std::string_view distribution = known_.value_of("distribution");
  std::size_t bytes = 0;
  for (const std::string& node : nodes) bytes += (node.size() + 1) * per_node_;
  return per_node_ != 0 && (distribution.empty() || distribution == "block") && bytes <= longest;
}

std::vector<std::string> SrunLine::words_for(const Choice& choice, const EnvironmentReader& environment) const {
  std::vector<std::string> words = options_;
  const auto count = static_cast<std::uint32_t>(choice.nodes.size());
  const bool ordered = choice.keeps_order && can_keep_order(choice.nodes);
  std::string list;
  for (const std::string& node : choice.nodes) {
    for (std::uint32_t i = 0; i < (ordered ? per_node_ : 1); ++i) list += concat({list.empty() ? "" : ",", node});
  }
  words.push_back(concat({"--nodelist=", list}));
  // srun 24.11 and later refuse --nodes beside that distribution, which has them from the list.
  if (!ordered) words.push_back(concat({"--nodes=", std::to_string(count)}));
  words.push_back(concat({"--ntasks=", std::to_string(per_node_ != 0 ? per_node_ * count : total_)}));
  if (per_node_ != 0) words.push_back(concat({"--ntasks-per-node=", std::to_string(per_node_)}));
  if (ordered) words.emplace_back("--distribution=arbitrary");
  words.emplace_back("--no-kill");
  words.emplace_back(choice.kills_on_bad_exit ? "--kill-on-bad-exit=1" : "--kill-on-bad-exit=0");
  // keep ends at the first Ctrl-C, and srun must with it: a tee behind the line dies of it, too. With -X srun hands
  // each Ctrl-C to the tasks.
  if (!known_.has("disable-status")) words.emplace_back("--quit-on-interrupt");
  if (choice.overlaps) {
    words.emplace_back("--overlap");
    // The job's whole memory, beside what the step holds that has not gone yet: Slurm lends CPUs twice, but no memory.
    if (!known_.has("mem-per-cpu") && !known_.has("mem-per-gpu")) words.emplace_back("--mem=0");
  }
  if (const auto variables = exported(known_, environment)) words.push_back(concat({"--export=", *variables}));
  words.insert(words.end(), command_.begin(), command_.end());
  return words;
}

}  // namespace amldist::keep
