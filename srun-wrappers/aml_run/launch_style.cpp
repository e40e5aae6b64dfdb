#include "aml_run/launch_style.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text/text.hpp"
#include "shared/shell.hpp"
#include "shared/task_variables.hpp"

namespace amldist::run {
namespace {

/// The words of a line for bash, command by command: quotes are taken off, comments left out, nothing is expanded.
class Commands {
 public:
  explicit Commands(std::string_view line) : line_(line) {}

  std::vector<std::vector<std::string>> read() {
    while (at_ < line_.size()) read_one();
    end_command();
    return std::move(commands_);
  }

 private:
  void read_one() {
    const char c = line_[at_];
    if (c == '\\') {
      if (at_ + 1 < line_.size() && line_[at_ + 1] != '\n') add(line_[at_ + 1]);
      at_ += 2;
    } else if (c == '\'' || c == '"') {
      read_quotes(c);
    } else if (c == '#' && !in_word_) {
      at_ = std::min(line_.find('\n', at_), line_.size());
    } else if (std::string_view(";&|()\n").find(c) != std::string_view::npos) {
      end_command();
      ++at_;
    } else if (c == ' ' || c == '\t') {
      end_word();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
  }
  void read_quotes(char quote) {
    in_word_ = true;
    for (++at_; at_ < line_.size() && line_[at_] != quote; ++at_) {
      if (quote == '"' && line_[at_] == '\\' && at_ + 1 < line_.size()) ++at_;
      word_ += line_[at_];
    }
    ++at_;
  }
  void add(char c) {
    word_ += c;
    in_word_ = true;
  }
  void end_word() {
    if (in_word_) words_.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }
  void end_command() {
    end_word();
    if (!words_.empty()) commands_.push_back(std::move(words_));
    words_.clear();
  }

  std::string_view line_;
  std::size_t at_ = 0;
  bool in_word_ = false;
  std::string word_;
  std::vector<std::string> words_;
  std::vector<std::vector<std::string>> commands_;
};

/// Words before a command that are not part of it: A=b, keywords, programs that start another one, and their options.
bool is_in_front(const std::string& word) {
  constexpr std::array<std::string_view, 18> fronts = {"numactl", "timeout", "ionice",  "exec",  "time",   "nohup",
                                                       "env",     "sudo",    "command", "nice",  "stdbuf", "if",
                                                       "then",    "else",    "do",      "while", "!",      "{"};
  const auto equals = word.find('=');
  const bool assigns = equals != std::string::npos && shell::is_name(std::string_view(word).substr(0, equals));
  const bool is_option = word.starts_with('-') || text::to_number(word, UINT32_MAX);
  return assigns || is_option || std::ranges::find(fronts, word) != fronts.end();
}

constexpr std::array<std::string_view, 4> launchers = {"torchrun", "torch.distributed.launch", "torch.distributed.run",
                                                       "accelerate launch"};

}  // namespace

std::optional<std::string_view> launcher_in(std::string_view shell_line) {
  for (const auto& words : Commands(shell_line).read()) {
    const auto first = std::ranges::find_if_not(words, is_in_front);
    if (first == words.end()) continue;
    const std::span<const std::string> command(first, words.end());
    if (const auto launcher = launcher_in(command)) return launcher;
    const std::string_view program = std::string_view(*first).substr(first->rfind('/') + 1);
    const bool is_shell = program == "bash" || program == "sh";
    const auto line = std::ranges::find_if(command, [](const std::string& word) {
      return word.size() > 1 && word[0] == '-' && word[1] != '-' && word.ends_with('c');
    });
    if (!is_shell || line == command.end() || line + 1 == command.end()) continue;
    if (const auto launcher = launcher_in(std::string_view(*(line + 1)))) return launcher;
  }
  return std::nullopt;
}

std::optional<std::string_view> launcher_in(std::span<const std::string> words) {
  const std::string_view program = words.front();
  const std::string_view name = program.substr(program.rfind('/') + 1);
  if (name == launchers[0]) return launchers[0];
  if (name == "accelerate" && words.size() > 1 && words[1] == "launch") return launchers[3];
  for (std::size_t i = 1; name.starts_with("python") && i + 1 < words.size(); ++i) {
    if (words[i] != "-m") continue;
    const auto* const module = std::ranges::find(launchers, std::string_view(words[i + 1]));
    return module == launchers.end() ? std::nullopt : std::optional(*module);
  }
  return std::nullopt;
}

bool reads_rank_variables(std::string_view shell_line) {
  constexpr std::array<std::string_view, 4> names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  return std::ranges::any_of(names, [&](std::string_view name) { return commands::mentions(shell_line, name); });
}

}  // namespace amldist::run
