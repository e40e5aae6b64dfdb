#include "fabric/checks/siblings.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::string shown(const Attribute& attribute) { return attribute.present() ? printable(attribute.text, 40) : ""; }

/// Attributes of a port: empty where the port does not tell.
std::string partition_keys(const NodeFacts& /*node*/, const JudgedPort& each) {
  std::set<std::string> keys;
  for (const PkeyEntry& entry : each.port->pkeys) keys.insert("0x" + to_hex(entry.value, 2));
  std::string out;
  for (const std::string& key : keys) out += concat({out.empty() ? "" : " ", key});
  return each.port->layer() == LinkLayer::infiniband ? out : "";
}

std::string gid_kinds(const NodeFacts& /*node*/, const JudgedPort& each) {
  std::set<std::string> kinds;
  for (const GidEntry& entry : each.port->gids) {
    if (entry.value.is_link_local() || entry.type.empty()) continue;
    kinds.insert(concat({printable(entry.type, 20), entry.value.is_ipv4() ? " IPv4" : " IPv6"}));
  }
  std::string out;
  for (const std::string& kind : kinds) out += concat({out.empty() ? "" : ", ", kind});
  return each.port->layer() == LinkLayer::ethernet ? out : "";
}

/// "32.0 GT/s x16"; empty for a virtual function, which has no link of its own, and for what is no number.
std::string link_text(const Attribute& speed, const Attribute& width) {
  if (!speed.present() || !width.present()) return "";
  const std::string_view number = std::string_view(speed.text).substr(0, speed.text.find(' '));
  const auto lanes = text::to_number(width.text, 64).value_or(0);
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789.") == std::string_view::npos;
  return lanes > 0 && is_number ? concat({printable(number, 12), " GT/s x", width.text}) : "";
}

std::string pcie_link(const NodeFacts& /*node*/, const JudgedPort& each) {
  return link_text(each.device->pci.current_speed, each.device->pci.current_width);
}

/// What the card and its slot could do: a card in a slot of fewer lanes is at its best and slow all the same.
std::string limit_text(const Attribute& speed, const Attribute& width, const std::vector<BridgeFacts>& bridges) {
  const std::string own = link_text(speed, width);
  const std::string slot = bridges.empty() ? "" : link_text(bridges.front().max_speed, bridges.front().max_width);
  return slot.empty() ? own : concat({own, " in a slot of ", slot});
}

std::string pcie_limit(const NodeFacts& /*node*/, const JudgedPort& each) {
  const PciFacts& pci = each.device->pci;
  return limit_text(pci.max_speed, pci.max_width, pci.bridges);
}

std::string numa_is_known(const NodeFacts& /*node*/, const JudgedPort& each) {
  const Attribute& numa = each.device->pci.numa_node;
  if (!numa.present()) return "";
  return numa.text == "-1" ? "-1 (unknown)" : "known";
}

/// The device's first interface; nullptr: it has none, or only GIDs name one that is not there.
const NetFacts* interface_of(const NodeFacts& node, const JudgedPort& each) {
  if (each.device->netdevs.empty()) return nullptr;
  const auto found = node.netdevs.find(each.device->netdevs.front());
  return found == node.netdevs.end() || found->second.operstate.absent() ? nullptr : &found->second;
}

std::string interface_kind(const NodeFacts& node, const JudgedPort& each) {
  const NetFacts* const net = interface_of(node, each);
  if (net == nullptr) return "none";
  return net->infiniband ? "IPoIB" : "present";
}

std::string interface_driver(const NodeFacts& node, const JudgedPort& each) {
  const NetFacts* const net = interface_of(node, each);
  return net == nullptr ? "" : printable(net->driver, 32);
}

/// Of IPoIB; roce.mtu compares those of Ethernet.
std::string ipoib_mtu(const NodeFacts& node, const JudgedPort& each) {
  const NetFacts* const net = interface_of(node, each);
  return net == nullptr || each.port->layer() != LinkLayer::infiniband ? "" : shown(net->mtu);
}

std::string pci_device(const NodeFacts& /*node*/, const JudgedPort& each) {
  return is_virtual_function(*each.device) ? "a virtual function" : "a physical function";
}

struct PortAttribute {
  SharedAttribute shared;
  Verdict severity = Verdict::warn;
  std::string (*value)(const NodeFacts&, const JudgedPort&) = nullptr;
  bool is_of_subnet = false;  ///< given by the subnet's manager, of which each rail may have its own
};
constexpr std::array<PortAttribute, 9> port_attributes = {{
    {{"ib.pkey", "", "P_Keys", "ask the administrator of the subnet manager for the same partitions on all ports"},
     Verdict::fail,
     partition_keys,
     true},
    {{"ib.gid", "gid_kinds", "kinds of GIDs", "give all interfaces of the fabric addresses of the same kind"},
     Verdict::warn,
     gid_kinds},
    {{"ib.pcie", "pcie", "PCIe link", "reseat the card, or check the slot's generation"}, Verdict::warn, pcie_link},
    {{"ib.pcie", "pcie_slot", "PCIe limit", "move the card to a slot like those of the others"},
     Verdict::warn,
     pcie_limit},
    {{"ib.affinity", "", "NUMA node", "see the firmware's tables (SRAT): without it NCCL does not know what is near"},
     Verdict::warn,
     numa_is_known},
    {{"ib.netdev", "interface", "network interface", "load the driver (mlx5_core, ib_ipoib) for all ports"},
     Verdict::warn,
     interface_kind},
    {{"ib.netdev", "ipoib_mtu", "IPoIB MTU", "set the same mode and MTU on all interfaces"}, Verdict::warn, ipoib_mtu},
    {{"ib.fw", "interface_driver", "driver", "bind all cards of this model to the same driver"},
     Verdict::warn,
     interface_driver},
    {{"ib.vf", "", "kind of function", "give the node functions of one kind"}, Verdict::warn, pci_device},
}};

/// Something that is compared with its siblings.
struct Member {
  std::string name;
  std::string value;
};

std::string rest_of(std::size_t others) {
  return others == 0 ? "" : concat({" and ", std::to_string(others), " more"});
}

/// Names the members whose value is not that of most; without a majority each value with an example.
void compare(const std::vector<Member>& members, const SharedAttribute& attribute, Verdict severity,
             std::vector<Difference>& out) {
  std::map<std::string, std::vector<std::string>> names;
  std::size_t told = 0;
  for (const Member& each : members) {
    if (each.value.empty()) continue;
    names[each.value].push_back(each.name);
    ++told;
  }
  if (names.size() < 2) return;
  const auto most = std::ranges::max_element(names, {}, [](const auto& each) { return each.second.size(); });
  // Half are enough where the others do not agree among themselves: two faults are no party.
  const std::size_t agreeing = most->second.size();
  const bool are_others_split = std::ranges::all_of(
      names, [&](const auto& each) { return each.first == most->first || 2 * each.second.size() <= agreeing; });
  const bool is_majority = agreeing >= 2 && (2 * agreeing > told || (2 * agreeing == told && are_others_split));
  for (const auto& [value, own] : names) {
    if (value == most->first) continue;
    out.push_back({std::string(attribute.check),
                   {is_majority ? severity : Verdict::warn,
                    concat({own.front(), rest_of(own.size() - 1), ": ", attribute.what, " ", value, ", ",
                            most->second.front(), rest_of(most->second.size() - 1), ": ", most->first}),
                    std::string(attribute.remedy)}});
  }
}

/// The first 64 bits of a port's GID: InfiniBand's subnet.
std::string subnet_of(const PortFacts& port) {
  const bool known = port.layer() == LinkLayer::infiniband && !port.gids.empty();
  return known ? port.gids.front().value.to_string().substr(0, 19) : "";
}

std::string family_of(const JudgedPort& each, bool is_of_subnet) {
  return concat(
      {model_of(*each.device), "/", each.port->link_layer.text, "/", is_of_subnet ? subnet_of(*each.port) : ""});
}

void compare_ports(const NodeFacts& node, const CheckRequest& request, std::vector<Difference>& out) {
  const bool is_required = request.policy == launch::RdmaPolicy::require;
  const auto ports = active_ports(node, request);
  for (const PortAttribute& attribute : port_attributes) {
    std::map<std::string, std::vector<Member>> families;
    for (const JudgedPort& each : ports) {
      families[family_of(each, attribute.is_of_subnet)].push_back(
          {each.name().to_string(), attribute.value(node, each)});
    }
    for (const auto& [family, members] : families)
      compare(members, attribute.shared, is_required ? attribute.severity : Verdict::warn, out);
  }
}

/// Whether somebody has said which ports the fabric consists of, or how many.
bool is_fabric_told(const CheckRequest& request) {
  const bool by_table = request.sku && (request.sku->devices || !request.sku->hca.empty());
  return by_table || !request.environment("NCCL_IB_HCA").value_or("").empty();
}

/// Names ports that nobody uses (switched off, or in the other link layer and without an address), although the same
/// port of three other cards of the model is.
void find_idle_ports(const NodeFacts& node, const CheckRequest& request, std::vector<Difference>& out) {
  constexpr std::ptrdiff_t fewest_siblings = 3;
  if (is_fabric_told(request)) return;
  const PortChoice choice = choose_ports(node, request);
  const auto& judged = choice.judged;
  constexpr std::string_view remedy =
      "if it belongs to the fabric, see its cable, its link type (mlxconfig) and its interface; else name "
      "the ports that do: hca= in /etc/aml-dist/skus.conf";
  for (const UnusedPort& each : choice.unused) {
    if (!each.may_be_sick) continue;
    out.push_back({"ib.state",
                   {Verdict::warn, concat({each.name.to_string(), " is not used: ", each.why}), std::string(remedy)}});
  }
  const bool has_physical =
      std::ranges::any_of(judged, [](const JudgedPort& each) { return !is_virtual_function(*each.device); });
  const auto shown_link = [](const PortFacts& port) {
    return concat({port.link_layer.shown(), ", ", port.state.shown()});
  };
  for (const DeviceFacts& device : node.devices) {
    const bool may_idle = is_virtual_function(device) && has_physical;
    if (role_of(node, device) != DeviceRole::fabric || may_idle || is_enslaved(node, device)) continue;
    for (const PortFacts& port : device.ports) {
      const JudgedPort own{&device, &port};
      const bool is_addressed = port.layer() == LinkLayer::ethernet && has_routable_gid(port);
      const auto is_said = [&own](const UnusedPort& each) { return each.may_be_sick && each.name == own.name(); };
      if (is_addressed || std::ranges::any_of(choice.unused, is_said)) continue;
      if (std::ranges::find(judged, &port, &JudgedPort::port) != judged.end()) continue;
      const auto is_sibling = [&own](const JudgedPort& each) {
        return model_of(*each.device) == model_of(*own.device) && place_of(each) == place_of(own);
      };
      const auto is_used = [&](const JudgedPort& each) { return each.port->is_active() && is_sibling(each); };
      const auto siblings = std::ranges::count_if(judged, is_sibling);
      if (siblings < fewest_siblings || std::ranges::none_of(judged, is_used)) continue;
      const JudgedPort& first = *std::ranges::find_if(judged, is_used);
      out.push_back(
          {"ib.state",
           {Verdict::warn,
            concat({own.name().to_string(), " is not used: ", shown_link(port), "; ", first.name().to_string(),
                    rest_of(static_cast<std::size_t>(siblings) - 1), ": ", shown_link(*first.port)}),
            std::string(remedy)}});
    }
  }
}

/// Values that two ports share although each must have its own.
class Unique {
 public:
  Unique(std::string_view check, std::string_view what, std::string_view remedy)
      : check_(check), what_(what), remedy_(remedy) {}

  void add(const std::string& value, const JudgedPort& owner, Verdict severity, std::vector<Difference>& out) {
    const auto [first, is_new] = seen_.try_emplace(value, owner);
    if (is_new || first->second.device == owner.device) return;
    out.push_back({std::string(check_),
                   {severity,
                    concat({first->second.name().to_string(), " and ", owner.name().to_string(), " have the same ",
                            what_, " ", value}),
                    std::string(remedy_)}});
  }

 private:
  std::string_view check_;
  std::string_view what_;
  std::string_view remedy_;
  std::map<std::string, JudgedPort> seen_;
};

bool is_all_zero(std::string_view guid) { return guid.find_first_not_of("0:") == std::string_view::npos; }

void find_duplicates(const NodeFacts& node, const CheckRequest& request, std::vector<Difference>& out) {
  constexpr std::string_view default_subnet = "fe80:0000:0000:0000";
  Unique lids("ib.lid", "LID", "see the subnet manager's log: a LID belongs to one port of its subnet");
  Unique guids("ib.gid", "GUID", "give each card or virtual function a GUID of its own");
  Unique gids("ib.gid", "GID", "give each port an address of its own");
  Unique addresses("ib.netdev", "hardware address", "give each interface an address of its own (ip link set address)");
  for (const JudgedPort& each : judged_ports(node, request)) {
    const PortFacts& port = *each.port;
    const bool is_infiniband = port.layer() == LinkLayer::infiniband;
    const Verdict severity = is_infiniband ? Verdict::fail : Verdict::warn;
    const std::string guid = shown(each.device->node_guid);
    const bool has_guid = !guid.empty() && !is_all_zero(guid) && port.layer() != LinkLayer::other;
    if (has_guid) guids.add(guid, each, severity, out);
    // Two subnets of the default prefix cannot be told apart, and may give out the same numbers.
    const std::string subnet = subnet_of(port);
    if (is_infiniband && port.is_active() && port.lid.present() && parse_hex16(port.lid.text).value_or(0) != 0)
      lids.add(concat({shown(port.lid), " (subnet ", subnet, ", SM LID ", shown(port.sm_lid), ")"}), each,
               subnet == default_subnet ? Verdict::warn : Verdict::fail, out);
    if (is_enslaved(node, *each.device)) continue;
    const NetFacts* const net = interface_of(node, each);
    const std::string address = net == nullptr ? "" : shown(net->address);
    if (!is_all_zero(address)) addresses.add(address, each, Verdict::warn, out);
    for (const GidEntry& entry : port.gids) {
      const bool is_own =
          is_infiniband ? entry.index == 0 && !entry.value.is_unconfigured() : !entry.value.is_link_local();
      if (is_own) gids.add(entry.value.to_string(), each, severity, out);
    }
  }
}

/// Of the speed an idle GPU says nothing: it lowers it.
std::string gpu_lanes(const GpuFacts& gpu) {
  const auto lanes = gpu.current_width.present() ? text::to_number(gpu.current_width.text, 64).value_or(0) : 0;
  return lanes > 0 ? concat({"x", std::to_string(lanes)}) : "";
}
std::string gpu_limit(const GpuFacts& gpu) { return limit_text(gpu.max_speed, gpu.max_width, gpu.bridges); }
std::string gpu_numa(const GpuFacts& gpu) {
  if (!gpu.numa_node.present()) return "";
  return gpu.numa_node.text == "-1" ? "-1 (unknown)" : "known";
}
std::string gpu_driver(const GpuFacts& gpu) { return gpu.driver.empty() ? "none" : printable(gpu.driver, 32); }

struct GpuAttribute {
  SharedAttribute shared;
  std::string (*value)(const GpuFacts&) = nullptr;
};
constexpr std::array<GpuAttribute, 4> gpu_attributes = {{
    {{"host.pci", "", "PCIe lanes", "reseat the GPU or its riser"}, gpu_lanes},
    {{"host.pci", "", "PCIe limit", "move the GPU to a slot like those of the others"}, gpu_limit},
    {{"host.pci", "", "NUMA node", "see the firmware's tables (SRAT)"}, gpu_numa},
    {{"host.pci", "", "driver", "bind the GPU to the driver, and see why the driver refuses it in the kernel's log"},
     gpu_driver},
}};

/// GPUs that are given to a virtual machine are no siblings of the others.
void compare_gpus(const NodeFacts& node, std::vector<Difference>& out) {
  for (const GpuAttribute& attribute : gpu_attributes) {
    std::map<std::string, std::vector<Member>> models;
    for (const GpuFacts& gpu : node.gpus) {
      if (is_given_away(gpu.driver)) continue;
      models[concat({gpu.nvidia ? "NVIDIA " : "AMD ", gpu.model.text})].push_back(
          {concat({"GPU ", gpu.address}), attribute.value(gpu)});
    }
    for (const auto& [model, members] : models) compare(members, attribute.shared, Verdict::warn, out);
  }
}

}  // namespace

std::vector<Difference> differences_between_siblings(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Difference> out;
  compare_ports(node, request, out);
  find_idle_ports(node, request, out);
  find_duplicates(node, request, out);
  compare_gpus(node, out);
  return out;
}

std::vector<SharedAttribute> shared_attributes() {
  std::vector<SharedAttribute> out;
  for (const PortAttribute& each : port_attributes) {
    if (!each.shared.trait.empty()) out.push_back(each.shared);
  }
  return out;
}

std::vector<Trait> shared_traits(const NodeFacts& node, const CheckRequest& request) {
  const auto ports = active_ports(node, request);
  std::vector<Trait> out;
  for (const PortAttribute& attribute : port_attributes) {
    std::set<std::string> values;
    for (const JudgedPort& each : ports) values.insert(attribute.value(node, each));
    values.erase("");
    std::string joined;
    for (const std::string& value : values) joined += concat({joined.empty() ? "" : ", ", value});
    if (!attribute.shared.trait.empty() && !joined.empty()) out.emplace_back(attribute.shared.trait, joined);
  }
  return out;
}

std::vector<std::string> identities_of(const NodeFacts& node, const CheckRequest& request) {
  std::set<std::string> out;
  for (const JudgedPort& each : active_ports(node, request)) {
    const std::string guid = shown(each.device->node_guid);
    if (!guid.empty() && !is_all_zero(guid)) out.insert(guid);
    for (const GidEntry& entry : each.port->gids) {
      if (!entry.value.is_link_local()) out.insert(entry.value.to_string());
    }
    // Where subnets have the default prefix, rails are told apart by the port's name, which is alike on alike nodes.
    const bool has_lid = each.port->layer() == LinkLayer::infiniband && each.port->lid.present();
    if (has_lid)
      out.insert(concat({each.name().to_string(), "/LID:", shown(each.port->lid), "/SM:", shown(each.port->sm_lid), "/",
                         subnet_of(*each.port)}));
  }
  return {out.begin(), out.end()};
}

}  // namespace amldist::fabric
