// Questions and answers between srun and the nodes of its step, beyond failure_report.hpp and server_release.hpp.
//
// A node of a heterogeneous step asks srun for its launch record, because no variable can carry it:
//
//   aml-dist;1;00c0ffee00c0ffee;which-record                      to srun
//   aml-dist;1;00c0ffee00c0ffee;record;1;step=12.0;addr=...       from srun: the text of launch_record.hpp
//
// If the site names an interface for MASTER_ADDR, only rank 0's node knows the address. It reports the address to srun,
// which answers `heard`. The other nodes ask srun until it knows:
//
//   aml-dist;1;00c0ffee00c0ffee;address;10.0.0.1                  from rank 0's node to srun, from srun to the others
//   aml-dist;1;00c0ffee00c0ffee;which-address                     to srun
//   aml-dist;1;00c0ffee00c0ffee;not-yet                           from srun
//   aml-dist;1;00c0ffee00c0ffee;no-address                        if rank 0's node has none, in place of `address`
//
// Each node reports when it has understood the launch record, and again before its tasks start their program, which
// they do when srun has heard of all nodes (server/roll_call.hpp). srun sends `start` to those that were told
// `not-yet`, too:
//
//   aml-dist;1;00c0ffee00c0ffee;here;node2                        to srun
//   aml-dist;1;00c0ffee00c0ffee;not-yet | start | refuse-step     from srun
//
// Under hang= each node tells srun every few seconds how long its longest wait is, in milliseconds. srun answers
// `heard`; `wants-states`, for the state of every rank (step/messages/rank_state.hpp); or `wants-stacks` with ranks:
//
//   aml-dist;1;00c0ffee00c0ffee;waits;61200                       to srun
//   aml-dist;1;00c0ffee00c0ffee;shares;node2 2:0:40:612:612:r1=9  to srun: the text of wait_shares.hpp
//   aml-dist;1;00c0ffee00c0ffee;wants-stacks;2,0                  from srun
//   aml-dist;1;00c0ffee00c0ffee;cause;2;the kernel killed ...      to srun: what may be why that rank does not come
//   aml-dist;1;00c0ffee00c0ffee;stack;2;0;thread 1234 ...         to srun, in pieces
//
// Under trace a node tells srun, before it reports a task's end, the same state as the task's recorder has it then:
//
//   aml-dist;1;00c0ffee00c0ffee;last-state;rank 2 4 0 gone mpi ... to srun
//
// Rank 0's node has a stand-in, which the nodes tell the same when srun does not answer any more. It tells srun its
// port, and the nodes ask srun where it is:
//
//   aml-dist;1;00c0ffee00c0ffee;stand-in;40123                    to srun, which answers `heard`
//   aml-dist;1;00c0ffee00c0ffee;which-stand-in                    to srun
//   aml-dist;1;00c0ffee00c0ffee;stand-in;10.0.0.1:40123           from srun, or `not-yet`
//
// Under stop= each node asks srun now and then in how many milliseconds the step is asked to stop:
//
//   aml-dist;1;00c0ffee00c0ffee;when-stop                         to srun
//   aml-dist;1;00c0ffee00c0ffee;stop-in;58200                     from srun; or `never`, without a time limit
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::step {

/// Messages that carry only the token.
enum class MessageType {
  may_i_end,
  not_yet,
  end,
  heard,
  which_record,
  which_address,
  no_address,
  use_fabric,
  use_sockets,
  refuse_step,
  wants_states,
  which_stand_in,
  start,
  when_stop
};

[[nodiscard]] std::string to_datagram(MessageType word, std::uint64_t token);
/// nullopt for a datagram that to_datagram(..., token) cannot have written.
[[nodiscard]] std::optional<MessageType> parse_message_type(std::string_view datagram, std::uint64_t token);

/// Messages that carry a text.
enum class Subject {
  record,
  address,
  waits,
  state,
  wants_stacks,
  stack,
  shares,
  stand_in,
  here,
  stop_in,
  cause,
  last_state
};

[[nodiscard]] std::string to_datagram(Subject subject, std::string_view text, std::uint64_t token);
/// The text inside `datagram`; nullopt for a datagram that to_datagram(subject, ..., token) cannot have written.
[[nodiscard]] std::optional<std::string_view> parse_text(Subject subject, std::string_view datagram,
                                                         std::uint64_t token);

}  // namespace amldist::step
