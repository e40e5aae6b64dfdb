#include "aml_dist/keep/node_watch.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/net/socket.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using std::chrono::milliseconds;

/// "discard", which hardly any machine offers; an answer of any kind is a sign of life.
constexpr std::uint16_t unused_port = 9;
constexpr milliseconds one_answer{1000};
constexpr std::size_t most_at_once = 256;

struct Question {
  std::string name;
  FileDescriptor socket;
  Clock::time_point until;
};

Answer answer_of(const FileDescriptor& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return Answer::silent;
  if (error == 0) return Answer::accepted;
  return error == ECONNREFUSED || error == ECONNRESET ? Answer::refused : Answer::silent;
}

/// Waits until one has answered or has been silent for too long. These leave `open`, which is in the order of its
/// times.
void collect(std::vector<Question>& open, std::map<std::string, Answer>& answers) {
  std::vector<pollfd> files;
  files.reserve(open.size());
  for (const Question& each : open) files.push_back({each.socket.get(), POLLOUT, 0});
  const auto left = std::chrono::ceil<milliseconds>(open.front().until - Clock::now());
  const int ready = ::poll(files.data(), files.size(), static_cast<int>(std::max(left, milliseconds(0)).count()));
  if (ready < 0 && errno != EINTR) return open.clear();
  for (std::size_t i = files.size(); ready > 0 && i-- > 0;) {
    if (files[i].revents == 0) continue;
    answers[open[i].name] = answer_of(open[i].socket);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::erase_if(open, [now = Clock::now()](const Question& each) { return now >= each.until; });
}

}  // namespace

std::map<std::string, Answer> knock(const Machines& machines, milliseconds limit, std::optional<std::uint16_t> port) {
  std::map<std::string, Answer> answers;
  std::vector<Question> open;
  for (auto next = machines.begin(); next != machines.end() || !open.empty();) {
    for (; next != machines.end() && open.size() < most_at_once; ++next) {
      auto socket = start_connection(next->second.address, port.value_or(next->second.slurmd));
      const bool refused = !socket && socket.error().message.find("refused") != std::string::npos;
      answers[next->first] = refused ? Answer::refused : Answer::silent;
      if (socket) open.push_back({next->first, std::move(*socket), Clock::now() + limit});
    }
    if (!open.empty()) collect(open, answers);
  }
  return answers;
}

std::set<std::string> parse_connections(std::string_view table, const std::set<std::uint64_t>& inodes) {
  std::set<std::string> out;
  for (const std::string_view line : text::split(table, '\n')) {
    std::vector<std::string_view> words;
    for (const std::string_view word : text::split(line, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    constexpr std::size_t remote = 2;
    constexpr std::size_t state = 3;
    constexpr std::size_t inode = 9;
    if (words.size() <= inode || words[state] != "01" || words[remote].size() < 8) continue;
    const auto number = text::to_number(words[inode], UINT64_MAX);
    if (!number || !inodes.contains(*number)) continue;
    const std::string hex(words[remote].substr(0, 8));
    const in_addr address{static_cast<in_addr_t>(std::strtoul(hex.c_str(), nullptr, 16))};
    std::array<char, INET_ADDRSTRLEN> text{};
    if (::inet_ntop(AF_INET, &address, text.data(), text.size()) != nullptr) out.emplace(text.data());
  }
  return out;
}

std::set<std::string> connected_addresses(pid_t process) {
  const std::string own = text::concat({"/proc/", std::to_string(process)});
  std::set<std::uint64_t> inodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(own + "/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();  // "socket:[12]"
    if (!target.starts_with("socket:[")) continue;
    if (const auto inode = text::to_number(std::string_view(target).substr(8, target.size() - 9), UINT64_MAX))
      inodes.insert(*inode);
  }
  constexpr std::size_t most = std::size_t{16} << 20;
  return parse_connections(read_file_start(own + "/net/tcp", most), inodes);
}

std::vector<std::string> SilenceWatch::look() {
  std::vector<std::string> gone;
  for (const auto& [name, answer] : knock(machines_, one_answer, unused_port)) {
    if (answer != Answer::silent) {
      heard_.insert(name);
      silent_since_.erase(name);
    } else if (heard_.contains(name)) {
      const auto since = silent_since_.emplace(name, Clock::now() - one_answer).first->second;
      if (Clock::now() - since >= patience) gone.push_back(name);
    }
  }
  return gone;
}

}  // namespace amldist::keep
