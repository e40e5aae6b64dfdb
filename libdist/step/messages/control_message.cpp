#include "step/messages/control_message.hpp"

#include <algorithm>
#include <array>

#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

struct Spelling {
  MessageType word;
  std::string_view text;
};
constexpr std::array<Spelling, 14> spellings = {{{MessageType::may_i_end, "may-i-end"},
                                                 {MessageType::not_yet, "not-yet"},
                                                 {MessageType::end, "end"},
                                                 {MessageType::heard, "heard"},
                                                 {MessageType::which_record, "which-record"},
                                                 {MessageType::which_address, "which-address"},
                                                 {MessageType::no_address, "no-address"},
                                                 {MessageType::use_fabric, "use-fabric"},
                                                 {MessageType::use_sockets, "use-sockets"},
                                                 {MessageType::refuse_step, "refuse-step"},
                                                 {MessageType::wants_states, "wants-states"},
                                                 {MessageType::which_stand_in, "which-stand-in"},
                                                 {MessageType::start, "start"},
                                                 {MessageType::when_stop, "when-stop"}}};

constexpr std::string_view name_of(Subject subject) noexcept {
  constexpr std::array<std::string_view, 12> names = {"record",       "address", "waits",  "state",
                                                      "wants-stacks", "stack",   "shares", "stand-in",
                                                      "here",         "stop-in", "cause",  "last-state"};
  return names.at(static_cast<std::size_t>(subject));
}

}  // namespace

std::string to_datagram(MessageType word, std::uint64_t token) {
  return encode(token, {std::ranges::find(spellings, word, &Spelling::word)->text});
}

std::optional<MessageType> parse_message_type(std::string_view datagram, std::uint64_t token) {
  const auto fields = decode(datagram, token);
  if (!fields || fields->size() != 1) return std::nullopt;
  const auto* const found = std::ranges::find(spellings, fields->front(), &Spelling::text);
  return found != spellings.end() ? std::optional(found->word) : std::nullopt;
}

std::string to_datagram(Subject subject, std::string_view text, std::uint64_t token) {
  return encode(token, {name_of(subject), text});
}

std::optional<std::string_view> parse_text(Subject subject, std::string_view datagram, std::uint64_t token) {
  const std::string head = encode(token, {name_of(subject), ""});
  if (datagram.size() > longest_answer || !datagram.starts_with(head)) return std::nullopt;
  return datagram.substr(head.size());
}

}  // namespace amldist::step
