#include "world/bootstrap/root_address.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/net/own_network.hpp"
#include "base/text/text.hpp"
#include "launch/placement/process_identity.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/step_port.hpp"

namespace amldist::world {
namespace {

using text::concat;

class FixedRootAddress final : public RootAddress {
 public:
  FixedRootAddress(RootEndpoint place, PortRanges ports)
      : RootAddress(std::move(ports)), place_(std::move(place)), host_(IpAddress::parse(place_.endpoint.host)) {}

  [[nodiscard]] std::string to_string() const override { return concat({"rank 0 at ", place_.endpoint.to_string()}); }

  [[nodiscard]] bool is_loopback() const override {
    return place_.endpoint.host == "localhost" || (host_ && host_->is_loopback());
  }

  [[nodiscard]] Result<FileDescriptor> publish() override {
    constexpr auto patience = std::chrono::seconds(2);  // a world that has just ended may still be closing its sockets
    const auto end = Clock::now() + patience;
    for (;;) {
      auto listener = listen_on(place_.endpoint.port, interface_of_rank_0());
      if (listener) held_ = FileDescriptor(::fcntl(listener->get(), F_DUPFD_CLOEXEC, 0));
      if (listener || listener.error().code != Errc::mismatch) return listener;
      if (Clock::now() >= end) return is_taken();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  [[nodiscard]] Result<std::vector<Endpoint>> look_up(Clock::time_point /*deadline*/) override {
    return std::vector<Endpoint>{place_.endpoint};
  }

  /// The interface follows from the address by which ranks reach each other: inside this machine, or the source of the
  /// route to rank 0's node. Ranks on rank 0's node are reached in two ways. A name may mean other addresses elsewhere.
  [[nodiscard]] Result<FileDescriptor> listen() override {
    IpAddress interface;
    if (host_ && host_->is_loopback()) {
      interface = *host_;
    } else if (host_ && !is_own(*host_)) {
      interface = source_address_to(*host_).value_or(interface);
    }
    return listen_within(ports(), interface, place_.endpoint.port);  // rank 0 needs that port, perhaps on this node
  }

  [[nodiscard]] FileDescriptor take_place() override { return std::move(held_); }

 private:
  [[nodiscard]] IpAddress interface_of_rank_0() const {
    return host_ && (host_->is_loopback() || is_own(*host_)) ? *host_ : IpAddress();
  }
  [[nodiscard]] static bool is_own(const IpAddress& address) {
    const auto own = own_addresses();
    return std::ranges::find(own, address) != own.end();
  }
  [[nodiscard]] Error is_taken() const {
    return {Errc::mismatch,
            concat({"rank 0 cannot listen on port ", std::to_string(place_.endpoint.port), " of ", own_host_name(),
                    " (", place_.rule, "): another process has it; give another MASTER_PORT, or free ports with ",
                    variable::port_range, ", the same on all ranks"})};
  }

  RootEndpoint place_;
  std::optional<IpAddress> host_;
  FileDescriptor held_;
};

Result<std::unique_ptr<RootAddress>> root_address_by_master(const EnvironmentReader& environment,
                                                            const PortRanges& ports) {
  const auto host = environment("MASTER_ADDR");
  const auto port = environment("MASTER_PORT");
  if (!host || host->empty() || !port) return Error{Errc::unavailable, "MASTER_ADDR and MASTER_PORT are not both set"};
  const auto number = text::to_number(*port, 65535);
  if (!number || *number == 0) {
    return Error{Errc::invalid_argument, concat({"MASTER_PORT=", text::quote(*port), " is not a port"})};
  }
  const std::uint16_t beside = launch::port_beside(static_cast<std::uint16_t>(*number), ports);
  std::string rule = concat({"the port of libamldist for MASTER_PORT=", *port});
  if (!ports.empty()) rule += concat({" in ", variable::port_range, "=", ports.to_string()});
  return root_address_at({{*host, beside}, std::move(rule)}, ports);
}

/// A step of plain srun: the host of rank 0 from Slurm's variables, the port from job and step.
Result<std::unique_ptr<RootAddress>> root_address_by_slurm(const EnvironmentReader& environment,
                                                           const launch::ProcessIdentity& identity,
                                                           const PortRanges& ports) {
  constexpr std::uint64_t most = UINT32_MAX;
  const auto number = [&](std::string_view name) { return text::to_number(environment(name).value_or(""), most); };
  const auto job = number("SLURM_JOB_ID");
  const auto step = number("SLURM_STEP_ID");
  const auto node = number("SLURM_NODEID");
  const auto nodes = number("SLURM_STEP_NUM_NODES");
  const auto tasks = number("SLURM_STEP_NUM_TASKS");
  if (!job || !step || !node || !nodes || !tasks) return Error{Errc::unavailable, "srun did not start this process"};
  std::vector<std::uint32_t> ranks;
  const std::string listed = environment("SLURM_GTIDS").value_or("");
  for (const std::string_view word : text::split(listed, ',')) {
    if (const auto rank = text::to_number(word, most)) ranks.push_back(static_cast<std::uint32_t>(*rank));
  }
  const auto small = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto placement = launch::read_placement(
      environment, has_own_pmix(environment, identity) ? environment("SLURM_PMIX_MAPPING_SERV") : std::nullopt,
      {small(*node), small(*nodes), small(*tasks), ranks});
  if (!placement) return placement.error();
  const std::uint16_t port = ports.empty()
                                 ? own_step_port(environment, small(*job), small(*step), launch::PortPurpose::bootstrap)
                                 : step_port(ports, launch::read_job_name(environment, small(*job)), small(*step),
                                             launch::PortPurpose::bootstrap);
  return root_address_at({{placement->master_host(), port}, "the port of this Slurm step"}, ports);
}

}  // namespace

std::string addresses_text(const FileDescriptor& listener, const RootAddress& root) {
  std::string text = std::to_string(local_port(listener));
  for (const IpAddress& address : own_addresses()) text += "," + address.to_string();
  text += ",127.0.0.1,::1";
  if (root.carried()) text += concat({";", root.carried()->to_hex()});
  return text;
}

Result<std::vector<Endpoint>> endpoints_of(const std::string& text, RootAddress& root) {
  const auto parts = text::split(text, ';');
  const auto words = text::split(parts[0], ',');
  const auto port = text::to_number(words[0], 65535);
  if (!port) return Error{Errc::mismatch, concat({"rank 0's address is malformed: ", text::quote(parts[0])})};
  if (parts.size() > 1) {
    if (const auto secret = world::Key::from_hex(parts[1])) root.carry(*secret);
  }
  std::vector<Endpoint> endpoints;
  for (std::size_t i = 1; i < words.size(); ++i) {
    endpoints.push_back({std::string(words[i]), static_cast<std::uint16_t>(*port)});
  }
  return endpoints;
}

std::unique_ptr<RootAddress> root_address_at(RootEndpoint place, PortRanges ports) {
  return std::make_unique<FixedRootAddress>(std::move(place), std::move(ports));
}

Result<std::unique_ptr<RootAddress>> choose_root_address(const EnvironmentReader& environment, const Settings& settings,
                                                         const launch::ProcessIdentity& identity, MpiSession* mpi) {
  const PortRanges& ports = settings.ports;
  if (settings.bootstrap == Bootstrap::tcp) return root_address_by_master(environment, ports);
  if (settings.bootstrap == Bootstrap::pmix) return root_address_by_pmix(identity, ports);
  if (settings.bootstrap == Bootstrap::slurm) return root_address_by_slurm(environment, identity, ports);
  if (mpi != nullptr) return root_address_by_mpi(*mpi, identity, ports);
  std::string reasons;
  if (environment("MASTER_ADDR") || environment("MASTER_PORT")) return root_address_by_master(environment, ports);
  if (has_own_pmix(environment, identity)) {
    auto address = root_address_by_pmix(identity, ports);
    if (address) return address;
    reasons = concat({"; PMIx: ", address.error().message});
  }
  if (environment("SLURM_STEP_ID")) {
    auto address = root_address_by_slurm(environment, identity, ports);
    if (address) return address;
    reasons += concat({"; Slurm: ", address.error().message});
  }
  return Error{Errc::unavailable, concat({"cannot find rank 0: set MASTER_ADDR and MASTER_PORT, or start the "
                                          "step with srun --aml-dist=KIND or --mpi=pmix",
                                          reasons})};
}

}  // namespace amldist::world
