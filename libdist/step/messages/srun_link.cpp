#include "step/messages/srun_link.hpp"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "base/time/clock.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds usual_pause{100};

/// Whether something has come before the pause is over.
bool wait_for_datagram(int socket, milliseconds most) noexcept {
  pollfd answer = {socket, POLLIN, 0};
  return ::poll(&answer, 1, static_cast<int>(most.count())) > 0;
}

/// Between half of `pause` and one and a half of it.
milliseconds jittered(milliseconds pause) noexcept {
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) return pause;
  return pause / 2 + milliseconds(random % static_cast<std::uint32_t>(pause.count() + 1));
}

milliseconds until(Clock::time_point end) { return std::chrono::ceil<milliseconds>(end - Clock::now()); }

/// Nanoseconds of the node's clock; no two calls of a process and its copies are likely to get the same.
std::uint64_t stamp_time() noexcept { return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()); }

}  // namespace

std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment) {
  const auto channel = ReportChannel::parse(environment(report_variable).value_or(""));
  // Set by slurmd: the address from which the launch came, and to which slurmstepd itself connects.
  const auto address = IpAddress::parse(environment(srun_host_variable).value_or(""));
  if (!channel || !address) return std::nullopt;
  return SrunLink{*address, *channel};
}

std::uint64_t new_sender() noexcept {
  std::uint64_t number = 0;
  // Without random numbers at boot: the time at which this process got here.
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) number = stamp_time();
  return number;
}

NodeSocket::NodeSocket(const SrunLink& target, std::size_t longest)
    : target_(target), socket_(DatagramSocket::towards(target.address)), buffer_(longest + seal_bytes, '\0') {}

void NodeSocket::send(std::string_view message) {
  const Stamp stamp{target_.sender, stamp_time()};
  asked_.at(sent_++ % asked_.size()) = stamp.time;
  const std::string datagram = seal(target_.channel.token, Direction::to_srun, stamp, message);
  socket_.send(datagram, {target_.address, target_.channel.port});
}

std::string NodeSocket::next() {
  constexpr std::uint64_t longest_ago = 10'000'000'000;
  DatagramPlace sender;
  const auto got = socket_.receive(buffer_, sender);
  if (!got) return {};
  auto answer = unseal(target_.channel.token, Direction::to_node, std::string_view(buffer_).substr(0, *got));
  const bool is_ours = answer && answer->stamp.sender == target_.sender &&
                       std::ranges::find(asked_, answer->stamp.time) != asked_.end() &&
                       stamp_time() - answer->stamp.time < longest_ago;
  return is_ours ? std::move(answer->message) : std::string();
}

std::string NodeSocket::answer(std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  for (auto left = patience; wait_for_datagram(socket_.descriptor(), std::max(left, milliseconds(0)));
       left = until(end)) {
    if (auto message = next(); !message.empty()) return message;
    if (Clock::now() >= end) break;  // strangers may send faster than they are read
  }
  return {};
}

void send_without_reply(const SrunLink& target, std::string_view message) {
  constexpr int copies = 2;  // against a lost datagram; srun ignores the second
  NodeSocket socket(target);
  for (int i = 0; socket && i < copies; ++i) socket.send(message);
}

bool tell(const SrunLink& target, std::string_view message) {
  constexpr milliseconds longest_pause{80};
  NodeSocket socket(target);
  const auto end = Clock::now() + patience_with_srun;
  for (milliseconds pause(20); socket && Clock::now() < end; pause = std::min(2 * pause, longest_pause)) {
    socket.send(message);
    const auto again = std::min(end, Clock::now() + pause);
    for (auto left = pause; left.count() > 0; left = until(again)) {
      const std::string answer = socket.answer(left);
      if (answer.empty()) break;
      if (parse_message_type(answer, target.channel.token) == MessageType::heard) return true;
    }
  }
  return false;
}

std::optional<MessageType> report_node(const SrunLink& target, std::string_view host,
                                       std::chrono::milliseconds patience, bool until_start) {
  constexpr milliseconds longest_pause{1000};
  constexpr milliseconds longest_delay{1000};
  constexpr milliseconds once_heard{10'000};  // srun may wait for slurmctld; or it has been killed
  NodeSocket socket(target);
  const std::string message = to_datagram(Subject::here, host, target.channel.token);
  milliseconds pause = usual_pause;
  auto heard_at = Clock::now();
  auto again = heard_at;
  while (socket) {
    const auto now = Clock::now();
    if (now - again > longest_delay) heard_at = now;  // this process was stopped meanwhile
    if (now - heard_at >= patience) break;
    socket.send(message);
    again = now + jittered(pause);  // from before the message: it may be stopped while it sends, too
    pause = std::min(2 * pause, longest_pause);
    for (auto left = until(again); left.count() > 0; left = until(again)) {
      const std::string heard = socket.answer(left);
      if (heard.empty()) break;
      const auto answer = parse_message_type(heard, target.channel.token);
      if (!answer) continue;
      if (answer != MessageType::not_yet || !until_start) return answer;
      heard_at = Clock::now();
      patience = std::max(patience, once_heard);
    }
  }
  return std::nullopt;
}

std::optional<std::string> ask(const SrunLink& target, MessageType question, Subject answer, int attempts) {
  NodeSocket socket(target, longest_answer);
  const std::string message = to_datagram(question, target.channel.token);
  for (int i = 0; socket && i < attempts; ++i) {
    socket.send(message);
    const std::string heard = socket.answer(usual_pause);
    if (heard.empty()) continue;
    if (const auto text = parse_text(answer, heard, target.channel.token)) return std::string(*text);
    if (parse_message_type(heard, target.channel.token) == MessageType::no_address) return std::string();
    constexpr timespec pause = {0, usual_pause.count() * 1'000'000L};
    static_cast<void>(::nanosleep(&pause, nullptr));  // the answer "not yet" comes at once
  }
  return std::nullopt;
}

}  // namespace amldist::step
