#include "aml_run/command/own_options.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;

struct Switch {
  std::string_view name;
  bool CommandLine::*field;
  bool value = true;
};
constexpr std::array<Switch, 14> switches = {{{"--dry-run", &CommandLine::dry_run},
                                              {"-W", &CommandLine::wait},
                                              {"--wait", &CommandLine::wait},
                                              {"--json", &CommandLine::json},
                                              {"--literal", &CommandLine::literal},
                                              {"--snapshot", &CommandLine::snapshot},
                                              {"--test-only", &CommandLine::test_only},
                                              {"--list", &CommandLine::list},
                                              {"--new-job", &CommandLine::new_job},
                                              {"--no-expand", &CommandLine::expand, false},
                                              {"-h", &CommandLine::help},
                                              {"--help", &CommandLine::help},
                                              {"--version", &CommandLine::version},
                                              {"--list-keys", &CommandLine::list_keys}}};

struct Text {
  std::string_view name;
  std::string CommandLine::*field;
};
constexpr std::array<Text, 7> texts = {{{"--kind", &CommandLine::kind},
                                        {"--aml-dist", &CommandLine::kind},
                                        {"--svg", &CommandLine::svg},
                                        {"--download-path", &CommandLine::download_path},
                                        {"--metric-pattern", &CommandLine::metric},
                                        {"--mpi", &CommandLine::mpi},
                                        {"--instance-types", &CommandLine::instance_types}}};

/// Options that are about a run that there is already.
constexpr std::array<std::string_view, 5> run_verbs = {"--show", "--resume", "--cancel", "--stream", "--download"};

Error wrong(std::string_view option, std::string_view what) { return {Errc::invalid_argument, concat({option, what})}; }

class Reader {
 public:
  Reader(const std::vector<std::string>& words, CommandLine& line) : words_(words), line_(line) {}

  Result<OwnOptions> read() {
    for (; at_ < words_.size(); ++at_) {
      const std::string_view word = words_[at_];
      auto done = word.starts_with("--")                     ? read_long(word)
                  : word.starts_with('-') && word.size() > 1 ? read_short(word)
                                                             : read_plain(word);
      if (!done) return done.error();
    }
    return std::move(own_);
  }

 private:
  Result<void> read_plain(std::string_view word) {
    if (line_.job_file.empty()) line_.job_file = word;
    else own_.extras.emplace_back(word);
    return {};
  }

  /// "-W", or several in one word: "-Wh".
  Result<void> read_short(std::string_view word) {
    const auto known = [](char letter) {
      const std::array<char, 2> name = {'-', letter};
      return std::ranges::find(switches, std::string_view(name.data(), name.size()), &Switch::name);
    };
    const std::string_view letters = word.substr(1);
    if (!std::ranges::all_of(letters, [&](char letter) { return known(letter) != switches.end(); })) {
      own_.extras.emplace_back(word);
    } else {
      for (const char letter : letters) line_.*known(letter)->field = true;
    }
    return {};
  }

  Result<void> read_long(std::string_view word) {
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto value = equals == std::string_view::npos ? std::nullopt : std::optional(word.substr(equals + 1));
    if (const auto* const flag = std::ranges::find(switches, name, &Switch::name); flag != switches.end()) {
      if (value) return wrong(name, " takes no value");
      line_.*flag->field = flag->value;
      return {};
    }
    if (const auto* const text = std::ranges::find(texts, name, &Text::name); text != texts.end()) {
      if (std::ranges::find(given_, text->field) != given_.end()) return wrong(name, " is given twice");
      given_.push_back(text->field);
      return read_value(name, value, line_.*text->field);
    }
    if (const auto* const verb = std::ranges::find(run_verbs, name); verb != run_verbs.end()) {
      if (!line_.run_verb.empty())
        return wrong(name, concat({" and --", line_.run_verb, " are given: give one of them"}));
      line_.run_verb = name.substr(2);
      return read_value(name, value, line_.run);
    }
    if (name == "--set") return read_value(name, value, own_.sets.emplace_back());
    if (name == "--setup") return read_value(name, value, line_.setup.emplace_back());
    own_.extras.emplace_back(word);
    return {};
  }

  Result<void> read_value(std::string_view name, std::optional<std::string_view> value, std::string& to) {
    if (!value && ++at_ >= words_.size()) return wrong(name, " needs a value");
    to = value ? *value : std::string_view(words_[at_]);
    return {};
  }

  const std::vector<std::string>& words_;
  CommandLine& line_;
  std::size_t at_ = 0;
  std::vector<std::string CommandLine::*> given_;
  OwnOptions own_;
};

}  // namespace

Result<OwnOptions> take_own_options(const std::vector<std::string>& words, CommandLine& line) {
  return Reader(words, line).read();
}

}  // namespace amldist::run
