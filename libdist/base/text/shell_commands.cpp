#include "base/text/shell_commands.hpp"

#include <algorithm>
#include <utility>

namespace amldist::text {
namespace {

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

}  // namespace

std::vector<std::vector<std::string>> shell_commands(std::string_view line) { return Commands(line).read(); }

}  // namespace amldist::text
