#include "collective/transport/tcp_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t most_messages = 64;         // of one system call
constexpr std::size_t few_messages = 2;           // whose pieces of memory the kernel lists without allocating
constexpr std::size_t most_in_turn = 1UL << 20;   // bytes of one system call, where both directions take turns
constexpr std::size_t most_early = 8UL << 10;     // bytes that are received before their message is expected
constexpr std::size_t longest_short = 4UL << 10;  // bytes of each message with which others are looked for

/// The kernel could not read or write the program's buffer.
Error bad_buffer(const std::string& own_name, const Message& message, std::string_view verb) {
  return {Errc::invalid_argument,
          text::concat({own_name, " gave a buffer to ", verb, " of which ", std::to_string(message.bytes),
                        " bytes are not its memory (", std::strerror(EFAULT), ")"})};
}

}  // namespace

class TcpStream::Parts {
 public:
  /// `limit`: bytes.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): of the parts only those that were put are read
  explicit Parts(std::size_t limit) noexcept : limit_(limit) {}
  [[nodiscard]] bool is_full(std::size_t most) const noexcept { return messages_ == most_messages || bytes_ >= most; }
  /// The rest of a message, as far as its place is known.
  void add(Progress& each) noexcept {
    std::size_t done = each.done;
    const auto rest = [&](void* memory, std::size_t size) {
      if (done < size && bytes_ < limit_)
        put(static_cast<std::byte*>(memory) + done, std::min(size - done, limit_ - bytes_));
      done -= std::min(done, size);
    };
    ++messages_;
    rest(each.header.data(), header_bytes);
    if (each.has_unknown_length()) return;
    rest(each.message.data, each.message.bytes);
    rest(each.code.data(), each.code_bytes);
  }
  void put(std::byte* memory, std::size_t size) noexcept {
    parts_[count_++] = {memory, size};
    bytes_ += size;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<const iovec> all() const noexcept { return {parts_.data(), count_}; }
  void copy_to(std::byte* memory) const noexcept {
    for (const iovec& each : all())
      memory = std::copy_n(static_cast<const std::byte*>(each.iov_base), each.iov_len, memory);
  }
  [[nodiscard]] msghdr header() noexcept {
    msghdr out = {};
    out.msg_iov = parts_.data();
    out.msg_iovlen = count_;
    return out;
  }

 private:
  std::array<iovec, 3 * most_messages + 1> parts_;
  std::size_t limit_;
  std::size_t count_ = 0;
  std::size_t messages_ = 0;
  std::size_t bytes_ = 0;
};

void TcpStream::open(FileDescriptor socket, std::optional<Codes> codes) {
  socket_ = std::move(socket);
  codes_ = std::move(codes);
}

bool TcpStream::add(const Message& message, Direction direction, std::size_t& left, std::uint64_t number) {
  const bool sends = direction == Direction::send;
  auto& queue = sends ? sends_ : receives_;
  Progress& added = queue.push(message, &left, code_bytes_, number);
  if (sends) added.header = {message.signature, message.bytes};
  if (sends) bytes_to_send_ += message.bytes;
  else if (!message.is_most) bytes_to_receive_ += message.bytes;
  ++left;
  return queue.size() == 1;
}

void TcpStream::give_up() noexcept {
  sends_.clear();
  receives_.clear();
  bytes_to_send_ = 0;
  bytes_to_receive_ = 0;
}

// ---- sending ----
Result<bool> TcpStream::push(const std::string& own_name, calls::Watchdog& watchdog) {
  bool any = false;
  std::size_t most = most_messages;
  while (!sends_.is_empty()) {
    Parts parts(takes_turns() ? most_in_turn : SIZE_MAX);
    add_sends(parts, most);
    const ssize_t sent = send(parts);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
    if (sent < 0 && errno == EFAULT && std::exchange(most, 1) > 1) continue;  // perhaps of another one than the oldest
    if (sent < 0 && errno == EFAULT) return bad_buffer(own_name, sends_.front().message, "send");
    if (sent < 0) return watchdog.lost(sends_.front().message.peer, std::strerror(errno));
    any = true;
    count_sent(static_cast<std::size_t>(sent));
    if (takes_turns()) return true;
  }
  return any;
}

/// A call with one piece of memory takes a tenth less of the kernel's time than one with two.
ssize_t TcpStream::send(Parts& parts) const noexcept {
  constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (parts.bytes() <= longest_short) {
    std::array<std::byte, longest_short> packed;  // NOLINT(cppcoreguidelines-pro-type-member-init): written first
    parts.copy_to(packed.data());
    return ::send(socket(), packed.data(), parts.bytes(), flags);
  }
  const msghdr whole = parts.header();
  return ::sendmsg(socket(), &whole, flags);
}

/// While codes are made for a packet, the one before it can be on its way.
void TcpStream::add_sends(Parts& parts, std::size_t most) {
  const std::size_t most_bytes_now = codes_ ? Transport::one_packet : most_bytes_;
  for (Progress& each : sends_.first(most)) {
    if (parts.is_full(most_bytes_now)) return;
    if (codes_ && !std::exchange(each.has_code, true))
      each.code = codes_->of_sent.next(std::as_bytes(std::span(each.header)), each.data());
    parts.add(each);
  }
}

void TcpStream::count_sent(std::size_t bytes) noexcept {
  while (bytes != 0) {
    Progress& oldest = sends_.front();
    const std::size_t moved = std::min(bytes, oldest.all() - oldest.done);
    oldest.done += moved;
    bytes -= moved;
    if (!oldest.is_done()) return;
    bytes_to_send_ -= oldest.message.bytes;
    --*oldest.left;
    sends_.pop();
  }
}

// ---- receiving ----
Result<bool> TcpStream::pull(const std::string& own_name, calls::Watchdog& watchdog) {
  bool any = false;
  bool is_drained = false;
  std::size_t most = most_messages;
  while (true) {
    const auto taken = take_early(watchdog);
    if (!taken) return taken.error();
    any = any || *taken;
    if (receives_.is_empty() || is_drained) return any;
    Parts parts(takes_turns() ? most_in_turn : SIZE_MAX);
    const bool are_short = add_receives(parts, has_looked_in_vain_ ? std::min(most, few_messages) : most);
    const Received received = receive(parts, are_short && most != 1);
    const ssize_t got = received.bytes;
    if (got < 0 && errno == EINTR) continue;
    has_looked_in_vain_ = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (has_looked_in_vain_) return any;
    if (got < 0 && errno == EFAULT && std::exchange(most, 1) > 1) continue;  // perhaps of another one than the oldest
    if (got < 0 && errno == EFAULT) return bad_buffer(own_name, receives_.front().message, "receive");
    if (got <= 0) {
      return watchdog.lost(receives_.front().message.peer,
                           got == 0 ? "it closed the connection" : std::strerror(errno));
    }
    any = true;
    const auto came = static_cast<std::size_t>(got);
    early_begin_ = 0;
    early_end_ = came - std::min(came, received.in_place);
    if (auto status = count_received(came - early_end_, watchdog); !status) return status.error();
    is_drained = came < received.room || takes_turns();
  }
}

/// `are_short`: then what follows them is received, too, and little is received in one piece, as it is sent.
TcpStream::Received TcpStream::receive(Parts& parts, bool are_short) {
  const std::size_t expected = parts.bytes();
  if (are_short) early_.resize(most_early);
  if (are_short && expected <= longest_short)
    return {::recv(socket(), early_.data(), early_.size(), MSG_DONTWAIT), 0, early_.size()};
  if (are_short) parts.put(early_.data(), early_.size());
  msghdr whole = parts.header();
  return {::recvmsg(socket(), &whole, MSG_DONTWAIT), expected, parts.bytes()};
}

/// Whether all of them are short, so that others may be close behind.
bool TcpStream::add_receives(Parts& parts, std::size_t most) {
  bool are_short = true;
  for (Progress& each : receives_.first(most)) {
    if (parts.is_full(most_bytes_)) break;
    parts.add(each);
    are_short = are_short && each.all() <= longest_short;
    if (each.has_unknown_length()) break;
  }
  return are_short;
}

/// `bytes` more of the oldest messages are there.
Result<void> TcpStream::count_received(std::size_t bytes, calls::Watchdog& watchdog) {
  while (bytes != 0) {
    Progress& oldest = receives_.front();
    const bool in_header = oldest.done < header_bytes;
    const std::size_t known = oldest.has_unknown_length() ? header_bytes : oldest.all();
    const std::size_t moved = std::min(bytes, known - oldest.done);
    oldest.done += moved;
    bytes -= moved;
    if (in_header && oldest.done >= header_bytes) {
      if (auto status = check_header(oldest, watchdog); !status) return status;
    }
    if (!oldest.is_done()) continue;
    if (auto status = check_code(oldest, watchdog); !status) return status;
    if (!oldest.message.is_most) bytes_to_receive_ -= oldest.message.bytes;
    --*oldest.left;
    receives_.pop();
  }
  return {};
}

Result<void> TcpStream::check_header(Progress& receive, calls::Watchdog& watchdog) {
  const auto [signature, length] = receive.header;
  Message& message = receive.message;
  const bool has_length = message.is_most ? length <= message.bytes : length == message.bytes;
  if (signature != message.signature || !has_length) return watchdog.differs(message.peer);
  message.bytes = length;
  return {};
}

Result<void> TcpStream::check_code(const Progress& receive, calls::Watchdog& watchdog) {
  if (!codes_) return {};
  const auto code = codes_->of_received.next(std::as_bytes(std::span(receive.header)), receive.data());
  if (code == receive.code) return {};
  return watchdog.lost(receive.message.peer, "a message from it was changed on the way");
}

/// Takes what has come before it was expected. A buffer that is not the program's memory ends the process, as it does
/// where messages come through shared memory.
Result<bool> TcpStream::take_early(calls::Watchdog& watchdog) {
  bool any = false;
  while (early_begin_ != early_end_ && !receives_.is_empty()) {
    Parts parts(SIZE_MAX);
    parts.add(receives_.front());
    std::size_t moved = 0;
    for (const iovec& part : parts.all()) {
      const std::size_t bytes = std::min(part.iov_len, early_end_ - early_begin_);
      std::memcpy(part.iov_base, early_.data() + early_begin_, bytes);
      early_begin_ += bytes;
      moved += bytes;
    }
    if (auto status = count_received(moved, watchdog); !status) return status.error();
    any = true;
  }
  return any;
}

}  // namespace amldist::collective
