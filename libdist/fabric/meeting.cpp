#include "fabric/meeting.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <optional>

#include "core/text.hpp"
#include "fabric/frames.hpp"

namespace amldist::fabric {
namespace {

using std::chrono::steady_clock;
using text::concat;

constexpr std::uint32_t most_nodes = 65536;

std::string hello_of(const MeetingPlace& place) {
  return concat({"aml-dist-meeting 1 ", place.step, " ", std::to_string(place.node), " ", std::to_string(place.nodes)});
}

/// The node that says hello; nullopt for anything that is none of this meeting.
std::optional<std::uint32_t> node_of(std::string_view hello, const MeetingPlace& place) {
  const auto words = text::split(hello, ' ');
  const bool ours = words.size() == 5 && words[0] == "aml-dist-meeting" && words[1] == "1" && words[2] == place.step &&
                    words[4] == std::to_string(place.nodes);
  const auto node = ours ? text::to_number(words[3], place.nodes - 1) : std::nullopt;
  return node ? std::optional(static_cast<std::uint32_t>(*node)) : std::nullopt;
}

std::optional<Meeting::Wanted> parse_wanted(std::string_view text, std::uint32_t nodes) {
  Meeting::Wanted wanted;
  if (text == "-") return wanted;
  wanted.all = text == "*";
  if (wanted.all) return wanted;
  for (const std::string_view piece : text::split(text, ',')) {
    const auto node = text::to_number(piece, nodes - 1);
    if (!node) return std::nullopt;
    wanted.nodes.push_back(static_cast<std::uint32_t>(*node));
  }
  return wanted;
}

/// "1, 5 and 3 others".
std::string list_nodes(const std::vector<std::uint32_t>& nodes) {
  constexpr std::size_t most = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(nodes.size(), most); ++i) {
    out += concat({i == 0 ? "" : ", ", std::to_string(nodes[i])});
  }
  if (nodes.size() > most) out += concat({" and ", std::to_string(nodes.size() - most), " others"});
  return out;
}

/// The host's work, in its thread.
class Hosting {
 public:
  Hosting(FileDescriptor listener, int stop, MeetingPlace place, std::chrono::milliseconds patience)
      : listener_(std::move(listener)), stop_(stop), place_(std::move(place)), patience_(patience) {
    seats_.resize(place_.nodes);
  }

  void run() {
    deadline_ = steady_clock::now() + patience_;
    while (!over_) {
      if (!wait()) return;
      accept_guests();
      hear_guests();
      hear_seats();
      if (std::ranges::all_of(seats_, [](const Seat& seat) { return seat.spoke; })) answer();
      else if (steady_clock::now() >= deadline_) give_up();
    }
  }

 private:
  struct Seat {
    FileDescriptor socket;
    FrameReader reader{longest_text + 4096};
    bool spoke = false;
    Meeting::Wanted wanted;
    std::string text;
  };
  struct Guest {
    FileDescriptor socket;
    FrameReader reader{256};
  };

  /// Until something comes. False: the meeting is to end.
  bool wait() {
    std::vector<pollfd> files = {{stop_, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) files.push_back({guest.socket.get(), POLLIN, 0});
    for (const Seat& seat : seats_) {
      if (seat.socket && !seat.spoke) files.push_back({seat.socket.get(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - steady_clock::now()).count();
    static_cast<void>(::poll(files.data(), files.size(), static_cast<int>(std::max<std::int64_t>(0, left))));
    return files.front().revents == 0;
  }

  void accept_guests() {
    for (;;) {
      FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket || guests_.size() > 2 * place_.nodes + 64) return;
      const int on = 1;
      static_cast<void>(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
      guests_.push_back({std::move(socket)});
    }
  }

  /// Guests that say hello get their seat; others are shown out.
  void hear_guests() {
    for (Guest& guest : guests_) {
      const auto state = guest.reader.read(guest.socket.get());
      if (state == FrameReader::State::incomplete) continue;
      const auto node = state == FrameReader::State::complete ? node_of(guest.reader.take(), place_) : std::nullopt;
      if (node && !seats_.at(*node).socket) seats_.at(*node).socket = std::move(guest.socket);
      guest.socket = FileDescriptor();
    }
    std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
  }

  void hear_seats() {
    for (std::uint32_t node = 0; node < place_.nodes; ++node) {
      Seat& seat = seats_.at(node);
      if (!seat.socket || seat.spoke) continue;
      const auto state = seat.reader.read(seat.socket.get());
      if (state == FrameReader::State::incomplete) continue;
      if (state == FrameReader::State::complete && take(seat, seat.reader.take())) continue;
      end(concat({"node ", std::to_string(node), " left before the end"}));
      return;
    }
  }

  bool take(Seat& seat, const std::string& message) {
    const auto newline = message.find('\n');
    const auto wanted = parse_wanted(std::string_view(message).substr(0, newline), place_.nodes);
    if (newline == std::string::npos || !wanted) return false;
    seat.wanted = *wanted;
    seat.text = message.substr(newline + 1);
    seat.spoke = true;
    return true;
  }

  void append(std::string& answer, std::uint32_t node) const {
    const std::string& text = seats_.at(node).text;
    answer += concat({std::to_string(node), " ", std::to_string(text.size()), "\n", text});
  }

  /// Everybody has spoken: everybody hears.
  void answer() {
    deadline_ = steady_clock::now() + patience_;
    for (Seat& seat : seats_) {
      std::string out = ".";
      if (seat.wanted.all) {
        for (std::uint32_t node = 0; node < place_.nodes; ++node) append(out, node);
      }
      for (const std::uint32_t node : seat.wanted.nodes) append(out, node);
      if (auto sent = write_all(seat.socket.get(), frame(out), deadline_); !sent) {
        end(concat({"a node does not listen: ", sent.error().message}));
        return;
      }
    }
    for (Seat& seat : seats_) seat.spoke = false;
  }

  void give_up() {
    std::vector<std::uint32_t> missing;
    bool all_came = true;
    for (std::uint32_t node = 0; node < place_.nodes; ++node) {
      if (!seats_.at(node).spoke) missing.push_back(node);
      all_came = all_came && seats_.at(node).socket;
    }
    end(concat({"nothing from node ", list_nodes(missing), all_came ? " any more" : ": it did not come", " within ",
                std::to_string(patience_.count() / 1000), " s"}));
  }

  void end(const std::string& why) {
    over_ = true;
    const Deadline soon = steady_clock::now() + std::chrono::seconds(1);
    for (const Seat& seat : seats_) {
      if (seat.socket) static_cast<void>(write_all(seat.socket.get(), frame("!" + why), soon));
    }
  }

  FileDescriptor listener_;
  int stop_;
  MeetingPlace place_;
  std::chrono::milliseconds patience_;
  Deadline deadline_;
  std::vector<Guest> guests_;
  std::vector<Seat> seats_;
  bool over_ = false;
};

void host(Hosting hosting) noexcept {
  try {
    hosting.run();
  } catch (const std::exception&) {  // out of memory: the nodes see the connections close
  }
}

/// IPv4 addresses of a host.
std::vector<sockaddr_in> addresses_of(const MeetingPlace& place) {
  addrinfo wanted = {};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<sockaddr_in> out;
  if (::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &wanted, &found) != 0) return out;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    sockaddr_in address = {};
    std::memcpy(&address, each->ai_addr, std::min<std::size_t>(sizeof address, each->ai_addrlen));
    out.push_back(address);
  }
  ::freeaddrinfo(found);
  return out;
}

FileDescriptor connect_once(const MeetingPlace& place) {
  for (const sockaddr_in& address : addresses_of(place)) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience = {2, 0};
    const int on = 1;
    static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience));
    static_cast<void>(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return socket;
    }
  }
  return FileDescriptor();
}

}  // namespace

Result<std::unique_ptr<MeetingHost>> MeetingHost::open(const MeetingPlace& place, std::chrono::milliseconds patience) {
  if (place.nodes == 0 || place.nodes > most_nodes) return Error{Errc::limit, "too many nodes to meet"};
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  static_cast<void>(::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(place.port);
  const bool listens = listener &&
                       ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(listener.get(), SOMAXCONN) == 0;
  if (!listens) {
    return Error{Errc::unavailable, concat({"port ", std::to_string(place.port), " cannot be used to meet: ",
                                            std::strerror(errno), ": give another with --port"})};
  }
  std::unique_ptr<MeetingHost> out(new MeetingHost());
  out->stop_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  out->thread_ = std::thread(host, Hosting(std::move(listener), out->stop_.get(), place, patience));
  return out;
}

MeetingHost::~MeetingHost() {
  if (!thread_.joinable()) return;
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_.join();
}

Result<Meeting> Meeting::join(const MeetingPlace& place, std::chrono::milliseconds patience) {
  const Deadline deadline = steady_clock::now() + patience;
  constexpr timespec pause = {0, 100'000'000};
  for (;;) {
    FileDescriptor socket = connect_once(place);
    if (socket) {
      if (auto said = write_all(socket.get(), frame(hello_of(place)), deadline); !said) return said.error();
      // The host waits as long as we do; its sentence about who is missing must have time to come.
      return Meeting(std::move(socket), patience + std::chrono::seconds(5));
    }
    if (steady_clock::now() >= deadline) break;
    static_cast<void>(::nanosleep(&pause, nullptr));
  }
  return Error{Errc::unavailable,
               concat({"node 0 (", text::quote(place.host), ", port ", std::to_string(place.port),
                       ") cannot be reached: does a firewall stand between, or does its own check not run?"})};
}

Result<std::map<std::uint32_t, std::string>> Meeting::round(const Wanted& wanted, std::string_view text) {
  std::string head = wanted.all ? "*" : "";
  for (const std::uint32_t node : wanted.nodes) head += concat({head.empty() ? "" : ",", std::to_string(node)});
  const Deadline deadline = steady_clock::now() + patience_;
  const std::string message = concat({head.empty() ? "-" : head, "\n", text.substr(0, longest_text)});
  if (auto sent = write_all(socket_.get(), frame(message), deadline); !sent) return sent.error();
  constexpr std::size_t longest_answer = std::size_t{1} << 30;
  const auto answer = read_frame(socket_.get(), longest_answer, deadline);
  if (!answer) return answer.error();
  std::string_view rest = *answer;
  if (!rest.starts_with('.'))
    return Error{Errc::unavailable, std::string(rest.substr(std::min<std::size_t>(1, rest.size())))};
  rest.remove_prefix(1);
  std::map<std::uint32_t, std::string> out;
  while (!rest.empty()) {
    const auto newline = rest.find('\n');
    const auto words = text::split(rest.substr(0, newline), ' ');
    const auto node = text::to_number(words.front(), most_nodes);
    const auto size = text::to_number(words.back(), longest_text);
    if (newline == std::string_view::npos || words.size() != 2 || !node || !size || *size > rest.size() - newline - 1) {
      return Error{Errc::internal, "node 0 answers in a form that is not known"};
    }
    out[static_cast<std::uint32_t>(*node)] = rest.substr(newline + 1, *size);
    rest.remove_prefix(newline + 1 + *size);
  }
  return out;
}

}  // namespace amldist::fabric
