#include "aml_dist/help.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/help_line.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::size_t text_column = 27;

/// CLI11's name of a type and what its checks say of themselves: "TEXT:{warn,fail}", "UINT:UINT in [1 - 9]".
std::pair<std::string, std::string> type_and_checks(const CLI::Option& option) {
  const std::string both = option.get_type_name();
  const auto colon = both.find(':');
  return {both.substr(0, colon), colon == std::string::npos ? std::string() : both.substr(colon + 1)};
}

std::string between(const std::string& in, char open, char close) {
  const auto begin = in.find(open);
  const auto end = in.find(close, begin == std::string::npos ? 0 : begin);
  return end == std::string::npos || begin == std::string::npos ? std::string() : in.substr(begin + 1, end - begin - 1);
}

/// The words that an option takes, with this between them; empty if it takes any.
std::string choices(const CLI::Option& option, std::string_view separator) {
  const std::string listed = between(type_and_checks(option).second, '{', '}');
  return listed.empty() ? listed : text::join(text::split(listed, ','), separator);
}

/// "1 to 65536", or empty.
std::string range(const CLI::Option& option) {
  const std::string limits = between(type_and_checks(option).second, '[', ']');
  const auto dash = limits.find(" - ");
  return dash == std::string::npos ? limits : concat({limits.substr(0, dash), " to ", limits.substr(dash + 3)});
}

/// The placeholder of the value: "SECONDS", "text|json", "N"; empty for a flag.
std::string placeholder(const CLI::Option& option) {
  const std::string type = type_and_checks(option).first;
  if (option.get_items_expected_max() == 0) return {};
  if (type == "UINT" || type == "INT" || type == "FLOAT") return "N";
  if (type != "TEXT") return type;
  const std::string named = choices(option, "|");
  return !named.empty() ? named : option.get_positional() ? option.get_name(true) : type;
}

bool is_list(const CLI::Option& option) { return option.get_positional() && option.get_items_expected_max() > 1; }

std::string head_of(const CLI::Option& option) {
  const std::string value = placeholder(option);
  if (option.get_positional()) return concat({value, is_list(option) ? "..." : ""});
  std::string out;
  for (const std::string& name : option.get_snames()) out += concat({"-", name, ", "});
  for (const std::string& name : option.get_lnames()) out += concat({"--", name, ", "});
  out.resize(out.size() - 2);
  return value.empty() ? out : concat({out, " ", value});
}

/// The description, with range and default behind it.
std::string text_of(const CLI::Option& option) {
  std::string limits = range(option);
  if (const std::string usual = option.get_default_str(); !usual.empty())
    limits += concat({limits.empty() ? "" : "; ", "default: ", usual});
  return limits.empty() ? option.get_description() : concat({option.get_description(), " (", limits, ")"});
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "aml-dist" : concat({"aml-dist ", app.get_name()});
}

std::string usage_of(const CLI::App& app) {
  std::string out = concat({full_name(app), " [OPTION]..."});
  for (const CLI::Option* each : app.get_options()) {
    if (!each->get_positional()) continue;
    const std::string name = concat({placeholder(*each), is_list(*each) ? "]..." : "]"});
    out += each->get_required() ? concat({" ", placeholder(*each)}) : concat({" [", name});
  }
  return out;
}

/// Cuts the first paragraph off.
std::string cut_paragraph(std::string& from) {
  const auto end = std::min(from.find("\n\n"), from.size());
  std::string out = from.substr(0, end);
  from.erase(0, end + 2);
  return out;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode /*mode*/) const override {
    std::string rest = app->get_footer();
    std::string out = concat({cut_paragraph(rest), "\n\n"});
    out += concat({rest.starts_with("aml-dist ") ? cut_paragraph(rest) : usage_of(*app), "\n\n"});
    out += concat({app->get_description(), ".\n"});
    for (const CLI::Option* each : app->get_options()) {
      if (!each->get_group().empty()) out += text::help_line(head_of(*each), text_of(*each), text_column);
    }
    for (const CLI::App* each : app->get_subcommands({})) {
      std::string words = each->get_description();
      words.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(words.front())));
      out += text::help_line(each->get_name(), words, text_column);
    }
    return concat({out, "\n", rest, "\n"});
  }
};

const CLI::Option* option_named(const CLI::App& app, std::string_view message) {
  return app.get_option_no_throw(std::string(message.substr(0, message.find_first_of(": "))));
}

std::string unexpected(const CLI::App& app) {
  const auto words = app.remaining(true);
  const auto found = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (found == words.end())
    return words.empty() ? "unexpected argument" : concat({"unexpected argument ", text::quote(words.front())});
  std::vector<std::string> names;
  for (const CLI::Option* each : app.get_options()) {
    for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const auto near = text::nearest(std::string_view(*found).substr(0, found->find('=')), known);
  return concat({"there is no option ", text::quote(*found), near ? concat({": did you mean ", *near, "?"}) : ""});
}

std::string wrong_value(const CLI::Option& option) {
  const auto& given = option.results();
  std::string values = choices(option, ", ");
  if (values.empty()) values = range(option);
  return concat({"invalid value ", text::quote(given.empty() ? "" : given.back()), " for ", option.get_name(true, true),
                 ": use ", values.empty() ? "a number" : values});
}

std::string problem_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string kind = error.get_name();
  const std::string_view said = error.what();
  const bool has_extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (has_extras || (app.get_parent() == nullptr && app.remaining_size() > 0)) return unexpected(app);
  if (app.get_parent() == nullptr) return "a command is missing";
  if (kind == "ConversionError" || kind == "ValidationError") {
    for (const CLI::Option* each : app.get_options()) {
      if (said.find(each->get_name()) != std::string_view::npos && each->count() > 0) return wrong_value(*each);
    }
  }
  if (const CLI::Option* const option = option_named(app, said); option != nullptr) {
    if (kind == "ArgumentMismatch") return concat({option->get_name(), " needs a value"});
    if (kind == "RequiredError") return concat({placeholder(*option), " is missing"});
  }
  return std::string(said);
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

std::string see_help(const CLI::App& app) { return concat({" (see ", full_name(app), " --help)"}); }

std::string sentence_of(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  return problem_of(command, error) + see_help(command);
}

}  // namespace amldist::tools
