#include "aml_run/command/az_line.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::run {
namespace az {
namespace {

using text::concat;

/// What becomes of an option of az.
enum class Becomes {
  file,     ///< the job file
  name,     ///< the id of a run; of a new one its name
  sets,     ///< every value a --set of its own
  word,     ///< an option of aml-run, with the same value
  format,   ///< of the answer
  ignored,  ///< said
  dropped,  ///< changes nothing here
  refused,
};

struct Option {
  std::string_view name;
  std::string_view letter;
  bool has_value;
  Becomes becomes;
  std::string_view text = {};  ///< aml-run's option, or the reason
};

constexpr std::string_view workspace = "there is no workspace: the job goes to this cluster of Slurm";

constexpr std::array options = {
    Option{"--file", "-f", true, Becomes::file},
    Option{"--name", "-n", true, Becomes::name},
    Option{"--set", "", true, Becomes::sets},
    Option{"--stream", "-s", false, Becomes::word, "--wait"},
    Option{"--download-path", "-p", true, Becomes::word, "--download-path"},
    Option{"--output", "-o", true, Becomes::format},
    Option{"--resource-group", "-g", true, Becomes::ignored, workspace},
    Option{"--workspace-name", "-w", true, Becomes::ignored, workspace},
    Option{"--subscription", "", true, Becomes::ignored, workspace},
    Option{"--web", "-e", false, Becomes::ignored, "a job here has no web page"},
    Option{"--no-wait", "", false, Becomes::dropped},
    Option{"--all", "", false, Becomes::dropped},
    Option{"--skip-validation", "", false, Becomes::dropped},
    Option{"--only-show-errors", "", false, Becomes::dropped},
    Option{"--debug", "", false, Becomes::dropped},
    Option{"--query", "", true, Becomes::refused, "--json prints an object, whose job_id is the job's number"},
    Option{"--save-as", "-a", true, Becomes::refused, "--json prints what was submitted"},
    Option{"--output-name", "", true, Becomes::refused, "--download copies all outputs"},
};

/// The option of aml-run that does a verb's work; create has none.
struct Verb {
  std::string_view name;
  std::string_view option;
};

constexpr std::array verbs = {Verb{"create", ""},         Verb{"show", "--show"}, Verb{"stream", "--stream"},
                              Verb{"cancel", "--cancel"}, Verb{"list", "--list"}, Verb{"download", "--download"}};

const Option* find_option(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(options, [&](const Option& each) { return name == each.name || name == each.letter; });
  return found == options.end() || name.empty() ? nullptr : found;
}

Error wrong(std::string_view sentence) {
  return {Errc::invalid_argument, concat({sentence, " (see docs/azure-ml.md)"})};
}

/// The words behind "az ml job VERB" as they are read.
class Reader {
 public:
  Reader(const Verb& verb, std::vector<std::string> words) : verb_(verb), words_(std::move(words)) {}

  Result<AzLine> read() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      const auto equals = word.starts_with("--") ? word.find('=') : std::string::npos;
      const Option* const option = find_option(word.substr(0, equals));
      if (option == nullptr) {
        line_.words.push_back(word);
        continue;
      }
      std::vector<std::string> values;
      if (equals != std::string::npos) values.push_back(word.substr(equals + 1));
      if (auto status = take_values(*option, values); !status) return status.error();
      if (auto status = take(*option, values); !status) return status.error();
    }
    if (verb_.option.empty() || verb_.option == "--list") {
      if (!verb_.option.empty()) line_.words.emplace_back(verb_.option);
      return std::move(line_);
    }
    if (id_.empty()) return wrong(concat({"which job? give its name or number: -n NAME"}));
    line_.words.insert(line_.words.end(), {std::string(verb_.option), id_});
    return std::move(line_);
  }

 private:
  /// az takes several values for --set.
  Result<void> take_values(const Option& option, std::vector<std::string>& values) {
    const std::size_t most = !option.has_value ? 0 : option.becomes == Becomes::sets ? words_.size() : 1;
    while (values.size() < most && at_ < words_.size() && !words_[at_].starts_with('-'))
      values.push_back(words_[at_++]);
    if (option.has_value && values.empty()) return wrong(concat({option.name, " needs a value"}));
    return {};
  }

  Result<void> take(const Option& option, const std::vector<std::string>& values) {
    switch (option.becomes) {
      case Becomes::file:
        line_.words.push_back(values.front());
        return {};
      case Becomes::name:
        if (!verb_.option.empty()) id_ = values.front();
        else line_.words.insert(line_.words.end(), {"--set", concat({"name=", values.front()})});
        return {};
      case Becomes::sets:
        for (const std::string& value : values) line_.words.insert(line_.words.end(), {"--set", value});
        return {};
      case Becomes::word:
        line_.words.emplace_back(option.text);
        line_.words.insert(line_.words.end(), values.begin(), values.end());
        return {};
      case Becomes::format:
        if (values.front() != "json")
          return wrong(concat({"--output ", values.front(), ": use json, or leave it out"}));
        line_.words.emplace_back("--json");
        return {};
      case Becomes::ignored:
        note(option);
        return {};
      case Becomes::dropped:
        return {};
      case Becomes::refused:
        break;
    }
    return wrong(concat({option.name, " is not supported here: ", option.text}));
  }

  /// One sentence for the three options that name a workspace.
  void note(const Option& option) {
    const auto is_said = [&](const std::string& note) { return note.ends_with(option.text); };
    if (std::ranges::any_of(line_.notes, is_said)) return;
    line_.notes.push_back(concat({option.name, " is ignored: ", option.text}));
  }

  const Verb& verb_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
  std::string id_;
  AzLine line_;
};

}  // namespace
}  // namespace az

Result<std::optional<AzLine>> read_az_line(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 3> head = {"az", "ml", "job"};
  std::size_t at = 0;
  for (std::size_t first = 0; first < head.size() && at == 0; ++first) {
    const std::size_t count = head.size() - first;
    if (words.size() >= count &&
        std::equal(head.begin() + static_cast<std::ptrdiff_t>(first), head.end(), words.begin()))
      at = count;
  }
  if (at == 0) return std::optional<AzLine>();
  const std::string_view name = at < words.size() ? std::string_view(words[at]) : std::string_view();
  const auto* const verb = std::ranges::find(az::verbs, name, &az::Verb::name);
  if (verb == az::verbs.end()) {
    return az::wrong(text::concat({"az ml job ", name.empty() ? "needs a verb" : text::quote(name),
                                   name.empty() ? "" : " is not done here",
                                   ": use create, show, stream, cancel, list or download"}));
  }
  auto line = az::Reader(*verb, {words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end()}).read();
  if (!line) return line.error();
  return std::optional(std::move(*line));
}

bool is_option_of_az(std::string_view name) {
  const az::Option* const option = az::find_option(name);
  return option != nullptr && option->becomes != az::Becomes::dropped;
}

}  // namespace amldist::run
