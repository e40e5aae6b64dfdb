#include "fabric/attribute.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/text.hpp"
#include "fabric/verdict.hpp"
#include "os/file_descriptor.hpp"

namespace amldist::fabric {
namespace {

Attribute unreadable(std::string why) { return {Attribute::State::unreadable, std::move(why)}; }

/// The value without its trailing newline and blanks; unreadable if it is not one line of text.
Attribute judged(std::string_view content) {
  if (content.size() > longest_attribute) return unreadable("over 4096 bytes long");
  const auto last = content.find_last_not_of(" \t\n\r");
  if (last == std::string_view::npos) return unreadable("empty");
  content = content.substr(0, last + 1);
  const bool text = std::ranges::all_of(content, [](char c) { return c >= ' ' && c < 0x7f; });
  if (!text) return unreadable(text::concat({"not one line of text: ", text::quote(content)}));
  return {Attribute::State::present, std::string(content)};
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Takes the leading digits of `text`, without leading zeros.
std::string_view take_digits(std::string_view& text) noexcept {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

}  // namespace

std::string Attribute::shown() const {
  if (state == State::absent) return "missing";
  return state == State::present ? printable(text) : text::concat({"unreadable (", text, ")"});
}

Attribute read_attribute(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return unreadable(std::strerror(errno));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return unreadable(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unreadable("not a regular file");
  std::array<char, longest_attribute + 1> buffer{};
  std::size_t length = 0;
  while (length < buffer.size()) {
    const ssize_t got = ::read(file.get(), buffer.data() + length, buffer.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(std::strerror(errno));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  return judged(std::string_view(buffer.data(), length));
}

std::vector<std::string> list_folder(const std::string& path, std::size_t most, std::string* problem) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) {
    if (problem != nullptr && errno != ENOENT && errno != ENOTDIR) *problem = std::strerror(errno);
    return names;
  }
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    const bool printable_name = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
    if (name == "." || name == ".." || !printable_name) continue;
    if (names.size() == most) {
      if (problem != nullptr) *problem = text::concat({"more than ", std::to_string(most), " entries"});
      break;
    }
    names.emplace_back(name);
  }
  std::ranges::sort(names, natural_less);
  return names;
}

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

bool natural_less(std::string_view a, std::string_view b) noexcept {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view left = take_digits(a);
      const std::string_view right = take_digits(b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else if (a.front() != b.front()) {
      return a.front() < b.front();
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

}  // namespace amldist::fabric
