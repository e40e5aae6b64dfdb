// What srun and the nodes of its step ask and answer, beside the reports of failure_report.hpp and server_release.hpp.
//
// A node of a heterogeneous step, whose launch record no variable can carry, asks for it:
//
//   aml-dist;1;00c0ffee00c0ffee;which-record                      to srun
//   aml-dist;1;00c0ffee00c0ffee;record;1;step=12.0;addr=...       from it: the text of launch_record.hpp
//
// Where the site names an interface for MASTER_ADDR, only rank 0's node knows the address. It tells srun, which answers
// `heard`, and the others ask until srun has been told:
//
//   aml-dist;1;00c0ffee00c0ffee;address;10.0.0.1                  from rank 0's node to srun, from srun to the others
//   aml-dist;1;00c0ffee00c0ffee;which-address                     to srun
//   aml-dist;1;00c0ffee00c0ffee;not-yet                           from it
//   aml-dist;1;00c0ffee00c0ffee;no-address                        where rank 0's node has none, instead of the first
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist {

/// The messages that carry nothing but the token.
enum class MessageType {
  may_i_end,
  not_yet,
  end,
  heard,
  which_record,
  which_address,
  no_address,
  use_fabric,
  use_sockets
};

[[nodiscard]] std::string to_datagram(MessageType word, std::uint64_t token);
/// nullopt for a datagram that to_datagram(..., token) cannot have written.
[[nodiscard]] std::optional<MessageType> parse_message_type(std::string_view datagram, std::uint64_t token);

/// The messages that carry a text.
enum class Subject { record, address };

[[nodiscard]] std::string to_datagram(Subject subject, std::string_view text, std::uint64_t token);
/// The text, as a part of `datagram`; nullopt for a datagram that to_datagram(subject, ..., token) cannot have written.
[[nodiscard]] std::optional<std::string_view> parse_text(Subject subject, std::string_view datagram,
                                                         std::uint64_t token);

}  // namespace amldist
