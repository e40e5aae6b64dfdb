#include "collective/bootstrap/root_address.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "placement/process_identity.hpp"
#include "placement/step_facts.hpp"
#include "rendezvous/step_port.hpp"

namespace amldist::collective {
namespace {

using text::concat;

class MasterAddress final : public RootAddress {
 public:
  explicit MasterAddress(Endpoint master) : master_(std::move(master)) {}

  [[nodiscard]] std::string to_string() const override { return concat({"rank 0 at ", master_.to_string()}); }

  [[nodiscard]] bool is_loopback() const override {
    const auto literal = Ipv4::parse(master_.host);
    return master_.host == "localhost" || (literal && literal->is_loopback());
  }

  [[nodiscard]] Result<FileDescriptor> publish() override {
    for (std::uint16_t step = 0; step < root_ports; ++step) {
      auto listener = listen_on(port(step));
      if (listener || listener.error().code != Errc::mismatch) return listener;
    }
    return Error{Errc::mismatch,
                 concat({"ports ", std::to_string(port(0)), " to ", std::to_string(port(root_ports - 1)),
                         " are all in use on this host: set "
                         "MASTER_PORT to a free one"})};
  }

  [[nodiscard]] Result<std::vector<Endpoint>> look_up(Clock::time_point /*deadline*/) override {
    std::vector<Endpoint> endpoints;
    for (std::uint16_t step = 0; step < root_ports; ++step) endpoints.push_back({master_.host, port(step)});
    return endpoints;
  }

 private:
  [[nodiscard]] std::uint16_t port(std::uint16_t step) const noexcept {
    constexpr unsigned highest = 65535;
    return static_cast<std::uint16_t>(std::min<unsigned>(master_.port + step, highest));
  }

  Endpoint master_;
};

Result<std::unique_ptr<RootAddress>> root_address_by_master(const EnvironmentReader& environment) {
  const auto host = environment("MASTER_ADDR");
  const auto port = environment("MASTER_PORT");
  if (!host || host->empty() || !port) return Error{Errc::unavailable, "MASTER_ADDR and MASTER_PORT are not both set"};
  const auto number = text::to_number(*port, 65535);
  if (!number || *number == 0) {
    return Error{Errc::invalid_argument, concat({"MASTER_PORT=", text::quote(*port), " is no port"})};
  }
  return root_address_at({*host, static_cast<std::uint16_t>(*number)});
}

/// A step of plain srun: the host of rank 0 from Slurm's variables, the port from job and step.
Result<std::unique_ptr<RootAddress>> root_address_by_slurm(const EnvironmentReader& environment,
                                                           const ProcessIdentity& identity) {
  constexpr std::uint64_t most = UINT32_MAX;
  const auto number = [&](std::string_view name) { return text::to_number(environment(name).value_or(""), most); };
  const auto job = number("SLURM_JOB_ID");
  const auto step = number("SLURM_STEP_ID");
  const auto node = number("SLURM_NODEID");
  const auto nodes = number("SLURM_STEP_NUM_NODES");
  const auto tasks = number("SLURM_STEP_NUM_TASKS");
  if (!job || !step || !node || !nodes || !tasks) return Error{Errc::unavailable, "this is no step of srun"};
  std::vector<std::uint32_t> ranks;
  const std::string listed = environment("SLURM_GTIDS").value_or("");
  for (const std::string_view word : text::split(listed, ',')) {
    if (const auto rank = text::to_number(word, most)) ranks.push_back(static_cast<std::uint32_t>(*rank));
  }
  const auto small = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto placement = read_placement(
      environment, has_own_pmix(environment, identity) ? environment("SLURM_PMIX_MAPPING_SERV") : std::nullopt,
      {small(*node), small(*nodes), small(*tasks), ranks});
  if (!placement) return placement.error();
  return root_address_at(
      {placement->master_host(), own_step_port(environment, small(*job), small(*step), PortPurpose::bootstrap)});
}

}  // namespace

std::string addresses_text(const FileDescriptor& listener, const RootAddress& root) {
  std::string text = std::to_string(local_port(listener));
  for (const Ipv4 address : own_addresses()) text += "," + address.to_string();
  text += ",127.0.0.1";
  if (root.carried()) text += concat({";", root.carried()->to_hex()});
  return text;
}

Result<std::vector<Endpoint>> endpoints_of(const std::string& text, RootAddress& root) {
  const auto parts = text::split(text, ';');
  const auto words = text::split(parts[0], ',');
  const auto port = text::to_number(words[0], 65535);
  if (!port) return Error{Errc::mismatch, concat({text::quote(parts[0]), " came as rank 0's address"})};
  if (parts.size() > 1) {
    if (const auto secret = wireup::Key::from_hex(parts[1])) root.carry(*secret);
  }
  std::vector<Endpoint> endpoints;
  for (std::size_t i = 1; i < words.size(); ++i) {
    endpoints.push_back({std::string(words[i]), static_cast<std::uint16_t>(*port)});
  }
  return endpoints;
}

std::unique_ptr<RootAddress> root_address_at(Endpoint master) {
  return std::make_unique<MasterAddress>(std::move(master));
}

Result<std::unique_ptr<RootAddress>> choose_root_address(const EnvironmentReader& environment, Bootstrap requested,
                                                         const ProcessIdentity& identity, MpiSession* mpi) {
  if (requested == Bootstrap::tcp) return root_address_by_master(environment);
  if (requested == Bootstrap::pmix) return root_address_by_pmix(identity);
  if (requested == Bootstrap::slurm) return root_address_by_slurm(environment, identity);
  if (mpi != nullptr) return root_address_by_mpi(*mpi, identity);
  std::string reasons;
  if (environment("MASTER_ADDR") || environment("MASTER_PORT")) return root_address_by_master(environment);
  if (has_own_pmix(environment, identity)) {
    auto address = root_address_by_pmix(identity);
    if (address) return address;
    reasons = concat({"; PMIx: ", address.error().message});
  }
  if (environment("SLURM_STEP_ID")) {
    auto address = root_address_by_slurm(environment, identity);
    if (address) return address;
    reasons += concat({"; Slurm: ", address.error().message});
  }
  return Error{Errc::unavailable, concat({"nothing says where rank 0 is: set MASTER_ADDR and MASTER_PORT, or start the "
                                          "step with srun --aml-dist=KIND or --mpi=pmix",
                                          reasons})};
}

}  // namespace amldist::collective
