// --help of aml-dist and its subcommands, and what is said of a wrong command line.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
class FormatterBase;
class ParseError;
}  // namespace CLI

namespace amldist::tools {

/// Prints an app in the style of aml-run: examples, usage, options, the rest of the footer; at most 80 columns.
///
/// The first paragraph of an app's footer has its examples. A second one that begins with the program's name is the
/// usage.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

/// " (see aml-dist trace --help)", for the end of a sentence.
[[nodiscard]] std::string see_help(const CLI::App& app);

/// One sentence without CLI11's terms. It ends with the help to look at, that of a subcommand if the user named one.
[[nodiscard]] std::string sentence_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace amldist::tools
