#include "fabric/facts/attribute.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/os/whole_file.hpp"
#include "base/text/hex.hpp"
#include "base/text/natural_order.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

Attribute unreadable(std::string why) { return {Attribute::State::unreadable, std::move(why)}; }

/// The value without its trailing newline and blanks; unreadable if it is not one line of text.
Attribute judged(std::string_view content) {
  const auto last = content.find_last_not_of(" \t\n\r");
  if (last == std::string_view::npos) return unreadable("empty");
  content = content.substr(0, last + 1);
  const bool text = std::ranges::all_of(content, [](char c) { return c >= ' ' && c < 0x7f; });
  if (!text) return unreadable(text::concat({"not one line of text: ", text::quote(content)}));
  return {Attribute::State::present, std::string(content)};
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
  const auto content = read_whole_file(path, longest_attribute);
  if (content) return judged(*content);
  return content.error().code == Errc::not_found ? Attribute() : unreadable(content.error().message);
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

std::string printable(std::string_view input, std::size_t longest) {
  std::string out;
  for (const char c : input.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      append_hex(out, byte);
    }
  }
  if (input.size() > longest) out += "...";
  return out;
}

}  // namespace amldist::fabric
