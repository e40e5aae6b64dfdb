#include "api/c/world_fabric.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/text/text.hpp"
#include "fabric/node_part.hpp"
#include "fabric/world_check.hpp"
#include "launch/option/settings.hpp"

namespace amldist::api {
namespace {

using calls::Call;
using calls::DataType;
using calls::Operation;
using collective::Communicator;
using text::concat;

/// Every rank's text, by rank: first their lengths, then the bytes.
Result<std::vector<std::string>> gather_texts(Communicator& world, const std::string& own) {
  const std::size_t size = world.identity().size;
  std::vector<std::uint64_t> lengths(size);
  const std::uint64_t own_length = own.size();
  Call call;
  call.operation = Operation::allgather;
  call.type = DataType::uint64;
  call.count = 1;
  call.send = &own_length;
  call.recv = lengths.data();
  if (auto status = world.run(call); !status) return status.error();
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::vector<std::size_t> offsets(size);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  std::string all(offsets.back() + counts.back(), '\0');
  call.operation = Operation::allgatherv;
  call.type = DataType::uint8;
  call.count = own.size();
  call.send = own.data();
  call.recv = all.data();
  const calls::CallLists lists = {{}, {}, counts, offsets};
  call.lists = &lists;
  if (auto status = world.run(call); !status) return status.error();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < size; ++rank) texts.push_back(all.substr(offsets[rank], counts[rank]));
  return texts;
}

Result<fabric::CheckRequest> make_request(launch::RdmaPolicy policy, const std::string& sku,
                                          const EnvironmentReader& environment) {
  fabric::CheckRequest request;
  request.policy = policy;
  request.policy_source = launch::variable::rdma;
  request.environment = environment;
  auto found = fabric::find_sku(sku);
  if (!found) return found.error();
  request.sku = std::move(*found);
  return request;
}

void tell(std::string_view line) {
  std::fprintf(stderr, "aml-dist: %.*s\n", static_cast<int>(line.size()), line.data());
}

void use_sockets() {
  for (const auto& [name, value] : fabric::socket_settings()) ::setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace

Result<void> verify_fabric(Communicator& world, const fabric::WorldPolicy& wanted,
                           const EnvironmentReader& environment) {
  const launch::RdmaPolicy policy = wanted.rdma;
  const launch::Identity& own = world.identity();
  if (policy == launch::RdmaPolicy::off || own.nodes < 2) return {};
  // An error on one rank alone would leave the others waiting: each takes part, whatever it knows about itself.
  const auto request = make_request(policy, wanted.sku, environment);
  const fabric::WorldPlace place{own.rank, own.node_rank, own.nodes, own.local_rank == 0, world.host(own.rank)};
  const auto verified = verify_world(place, request, fabric::Roots(),
                                     [&world](const std::string& text) { return gather_texts(world, text); });
  if (!verified) return verified.error();
  if (own.rank == 0) {
    for (const std::string& line : verified->warnings) tell(concat({"rdma=", to_string(policy), ": ", line}));
  }
  if (verified->failure.empty()) return {};
  if (policy == launch::RdmaPolicy::require) {
    return Error{Errc::unavailable, concat({"rdma=require failed between the nodes: ", verified->failure})};
  }
  if (own.rank == 0) {
    tell(
        concat({"rdma=prefer: all ranks use sockets instead of RDMA (NCCL_IB_DISABLE, UCX_TLS): ", verified->failure}));
  }
  use_sockets();
  return {};
}

}  // namespace amldist::api
