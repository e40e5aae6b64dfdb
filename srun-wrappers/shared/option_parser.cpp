#include "shared/option_parser.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <utility>

#include "base/text/text.hpp"
#include "shared/switch_value.hpp"

namespace amldist::commands {
namespace {

using text::concat;

/// CLI11 takes "--name=" for an option whose value is the next word. This character represents the empty value.
constexpr char empty_mark = '\x01';

void mark_empty_values(std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1) word += empty_mark;
  }
}

std::string unmarked(std::string value) {
  if (value.ends_with(empty_mark)) value.pop_back();
  return value;
}

/// CLI11's messages begin with the option's name.
std::string sentence_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string_view said = error.what();
  const std::string name(said.substr(0, said.find_first_of(": ")));
  return app.get_option_no_throw(name) == nullptr ? std::string(said) : concat({name, " needs a value"});
}

/// CLI11's value for an option without a value; no option of sbatch has this value.
constexpr std::string_view no_value = "true";

void add(CLI::App& app, const std::string& names, Argument argument, const OptionParser::Take& take) {
  auto* const option = app.add_option(names, CLI::callback_t([take](const CLI::results_t& results) {
                                        take(unmarked(results.front()));
                                        return true;
                                      }));
  option->trigger_on_parse();  // in the order of the words
  if (argument != Argument::required) option->expected(0);
  if (argument == Argument::none) option->disable_flag_override();
}

}  // namespace

OptionParser::OptionParser() : app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag();
  app_->allow_extras();
}

OptionParser::~OptionParser() = default;

void OptionParser::add_value(const std::string& names, const Take& take) {
  add(*app_, names, Argument::required, take);
}

void OptionParser::add_text(const std::string& names, std::string& to) {
  add_value(names, [this, names, given = false, &to](const std::string& value) mutable {
    if (std::exchange(given, true)) given_twice_ = names;
    to = value;
  });
}

void OptionParser::add_switch(const std::string& names, const Take& take) { add(*app_, names, Argument::none, take); }

void OptionParser::add_slurm_options(SlurmOptions& taken) {
  for (const SlurmOption& option : slurm_options()) {
    std::string names = concat({"--", option.name});
    for (const std::string_view other : other_names_of(option)) names += concat({",--", other});
    if (option.letter != '\0') names += concat({",-", std::string(1, option.letter)});
    add(*app_, names, option.argument, [&taken, &option](const std::string& value) {
      const bool bare = option.argument != Argument::required && value == no_value;
      taken.set(option.name, bare ? std::nullopt : std::optional(value));
    });
  }
}

Result<std::vector<std::string>> OptionParser::parse(std::vector<std::string> words) {
  if (const auto valued = switch_with_value(*app_, words))
    return Error{Errc::invalid_argument, concat({*valued, " takes no value"})};
  mark_empty_values(words);
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return Error{Errc::invalid_argument, sentence_of(*app_, error)};
  }
  if (!given_twice_.empty()) return Error{Errc::invalid_argument, concat({given_twice_, " is given twice"})};
  auto extras = app_->remaining();
  for (std::string& word : extras) word = unmarked(std::move(word));
  return extras;
}

std::vector<std::string> OptionParser::names() const {
  std::vector<std::string> out;
  for (const CLI::Option* const option : app_->get_options()) {
    const auto& names = option->get_lnames();
    out.insert(out.end(), names.begin(), names.end());
  }
  return out;
}

Result<SlurmOptions> read_slurm_option(const std::string& word) {
  SlurmOptions taken;
  OptionParser parser;
  parser.add_slurm_options(taken);
  const auto rest = parser.parse({word});
  if (!rest) return rest.error();
  if (rest->empty() && !taken.all().empty()) return taken;
  return Error{Errc::not_found, concat({text::quote(word), " is not an option of sbatch"})};
}

}  // namespace amldist::commands
