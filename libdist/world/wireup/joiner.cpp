#include "world/wireup/joiner.hpp"

#include <algorithm>
#include <thread>

#include "base/net/name_lookup.hpp"
#include "base/text/text.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

using text::concat;

struct Candidate {
  IpAddress address;
  std::uint16_t port = 0;
};

/// The addresses of all endpoints. `problem`: the error of the last name that has no address.
std::vector<Candidate> look_up(const std::vector<Endpoint>& endpoints, Clock::time_point deadline,
                               std::string& problem) {
  std::vector<Candidate> out;
  for (const Endpoint& endpoint : endpoints) {
    const auto addresses = addresses_of(endpoint.host, deadline);
    if (!addresses) {
      problem = addresses.error().message;
      continue;
    }
    for (const IpAddress& address : *addresses) out.push_back({address, endpoint.port});
  }
  return out;
}

/// One attempt. Invalid if no member of this group answered; `problem` says what happened.
Result<FileDescriptor> attempt(const Candidate& candidate, const std::string& join_request, const GroupKey& group,
                               Clock::time_point deadline, std::string& problem) {
  auto connection = connect_to(candidate.address, candidate.port, deadline);
  if (!connection) {
    problem = connection.error().message;
    return FileDescriptor();
  }
  const auto accepted = introduce(*connection, join_request, group, deadline);
  if (!accepted) return accepted.error();
  if (*accepted) return connection;
  problem = concat({"the program that answers at ", Endpoint{candidate.address.to_string(), candidate.port}.to_string(),
                    " does not belong to this step"});
  return FileDescriptor();
}

}  // namespace

bool prove(const FileDescriptor& connection, const std::string& join_request, const GroupKey& group,
           Clock::time_point deadline) {
  JoinerHandshake handshake(group, join_request);
  if (handshake.hello().empty() || !send_all(connection, handshake.hello(), deadline)) return false;
  auto challenge = read_frame(connection, limits.proof_bytes, deadline);
  if (!challenge) return false;
  const auto proof = handshake.take(std::move(*challenge), Ends::as_joiner(connection));
  return proof && send_all(connection, *proof, deadline);
}

Result<bool> introduce(const FileDescriptor& connection, const std::string& join_request, const GroupKey& group,
                       Clock::time_point deadline) {
  if (!prove(connection, join_request, group, deadline)) return false;
  auto answer = read_frame(connection, limits.join_request_bytes, deadline);
  if (!answer) return false;
  if (answer->kind<HandshakeKind>() == HandshakeKind::refused) return read_refusal(*answer);
  return is_acceptance(*answer);
}

Result<Joined> join(const Destination& destination, const std::string& join_request, const GroupKey& group,
                    Clock::time_point deadline) {
  if (join_request.size() > frame_head + limits.join_request_bytes) {
    return Error{Errc::limit, "the names of host and job are too long to be sent to the other processes"};
  }
  std::string problem = "no process answers";
  for (auto pause = std::chrono::milliseconds(2); Clock::now() < deadline;) {
    const auto endpoints = destination.endpoints(deadline);
    if (!endpoints) return endpoints.error();
    const auto candidates = look_up(*endpoints, deadline, problem);
    const auto patience = candidates.size() == 1 ? limits.join_request_time : limits.answer_time;
    for (const Candidate& each : candidates) {
      auto link = attempt(each, join_request, group, std::min(deadline, Clock::now() + patience), problem);
      if (!link) return link.error();
      if (*link) return Joined{std::move(*link), {each.address.to_string(), each.port}};
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
  return Error{Errc::timeout,
               concat({destination.name, " did not answer before the deadline (", problem, ")", destination.hint})};
}

}  // namespace amldist::world
