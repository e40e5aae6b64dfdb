#include "rendezvous/conversation.hpp"

#include <algorithm>
#include <array>

#include "rendezvous/datagram.hpp"

namespace amldist {
namespace {

struct Spelling {
  Word word;
  std::string_view text;
};
constexpr std::array<Spelling, 9> spellings = {{{Word::may_i_end, "may-i-end"},
                                                {Word::not_yet, "not-yet"},
                                                {Word::end, "end"},
                                                {Word::heard, "heard"},
                                                {Word::which_record, "which-record"},
                                                {Word::which_address, "which-address"},
                                                {Word::no_address, "no-address"},
                                                {Word::use_fabric, "use-fabric"},
                                                {Word::use_sockets, "use-sockets"}}};

constexpr std::string_view name_of(Subject subject) noexcept {
  return subject == Subject::record ? "record" : "address";
}

}  // namespace

std::string to_datagram(Word word, std::uint64_t token) {
  return seal(token, {std::ranges::find(spellings, word, &Spelling::word)->text});
}

std::optional<Word> parse_word(std::string_view datagram, std::uint64_t token) {
  const auto fields = unseal(datagram, token);
  if (!fields || fields->size() != 1) return std::nullopt;
  const auto* const found = std::ranges::find(spellings, fields->front(), &Spelling::text);
  return found != spellings.end() ? std::optional(found->word) : std::nullopt;
}

std::string to_datagram(Subject subject, std::string_view text, std::uint64_t token) {
  return seal(token, {name_of(subject), text});
}

std::optional<std::string_view> parse_text(Subject subject, std::string_view datagram, std::uint64_t token) {
  const std::string head = seal(token, {name_of(subject), ""});
  if (datagram.size() > longest_answer || !datagram.starts_with(head)) return std::nullopt;
  return datagram.substr(head.size());
}

}  // namespace amldist
