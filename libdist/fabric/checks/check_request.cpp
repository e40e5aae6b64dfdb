#include "fabric/checks/check_request.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

/// The ports of devices that the fabric may consist of.
std::vector<JudgedPort> candidate_ports(const NodeFacts& node, const CheckRequest& request) {
  const DeviceRole wanted = request.expects(Sku::Fabric::efa) ? DeviceRole::efa : DeviceRole::fabric;
  std::vector<JudgedPort> ports;
  for (const DeviceFacts& device : node.devices) {
    if (role_of(node, device) != wanted) continue;
    for (const PortFacts& port : device.ports) ports.push_back({&device, &port});
  }
  return ports;
}

std::vector<JudgedPort> selected(std::vector<JudgedPort> ports, const NcclSelection& selection) {
  std::erase_if(ports, [&](const JudgedPort& each) { return !selection.takes(each.device->name, each.port->number); });
  return ports;
}

bool is_unknown(const JudgedPort& each) { return !each.port->link_layer.present(); }

LinkLayer expected_layer(const std::vector<JudgedPort>& ports, const CheckRequest& request) {
  if (request.expects(Sku::Fabric::efa)) return LinkLayer::other;
  if (request.expects(Sku::Fabric::infiniband)) return LinkLayer::infiniband;
  if (request.expects(Sku::Fabric::roce)) return LinkLayer::ethernet;
  const bool any =
      std::ranges::any_of(ports, [](const JudgedPort& each) { return each.port->layer() == LinkLayer::infiniband; });
  return any ? LinkLayer::infiniband : LinkLayer::ethernet;
}

/// The ports of the fabric's link layer, and those whose layer cannot be read.
std::vector<JudgedPort> of_layer(std::vector<JudgedPort> ports, LinkLayer wanted) {
  std::erase_if(ports, [wanted](const JudgedPort& each) { return !is_unknown(each) && each.port->layer() != wanted; });
  return ports;
}

/// The name of the device's PCI function, "0000:17:00.1"; empty if it is not told.
std::string_view function_of(const DeviceFacts& device) {
  const std::string_view name = std::string_view(device.pci.path).substr(device.pci.path.rfind('/') + 1);
  return name.find('.') == std::string_view::npos ? std::string_view() : name;
}

/// "0000:17:00" of "0000:17:00.1": the card that a function belongs to. Virtual functions are cards of their own.
std::string card_of(const DeviceFacts& device) {
  const std::string_view function = is_virtual_function(device) ? std::string_view() : function_of(device);
  return function.empty() ? device.name : std::string(function.substr(0, function.rfind('.')));
}

/// Whether an Ethernet port has an address. InfiniBand's GIDs say nothing about use.
bool has_address(const PortFacts& port) { return port.layer() == LinkLayer::ethernet && has_routable_gid(port); }

/// Whether its only addresses are of 169.254.0.0/16.
bool has_own_address(const PortFacts& port) {
  const bool is_own =
      std::ranges::any_of(port.gids, [](const GidEntry& entry) { return entry.value.is_ipv4_link_local(); });
  return port.layer() == LinkLayer::ethernet && is_own && !has_routable_gid(port);
}

/// Cards of one chip, whatever board it is on: "MT4129", else the PCI ids.
std::string chip_of(const DeviceFacts& device) {
  return device.hca_type.present() ? device.hca_type.text
                                   : concat({device.pci.vendor.text, ":", device.pci.device.text});
}

/// Whether there is something at the other end of the cable: also a port that is not yet active, or whose state is odd.
bool has_link(const PortFacts& port) { return port.state.present() && parse_state(port.state.text) != PortState::down; }

/// Cards that are in use, by chip.
using CardsOfChip = std::map<std::string, std::set<std::string>>;

/// What the ports of a node have in common; used for judging each of them.
struct SiblingPorts {
  CardsOfChip active_chips;
  std::set<std::string> linked_cards;
  std::set<std::string> routable_models;
  std::map<std::string, std::map<std::string, std::set<std::string>>> linked_places;  ///< by model and card
  bool any_active = false;
  bool any_physical_active = false;
  bool any_routable = false;
  bool is_own_meant = false;  ///< two neighbours on cables: no port has another address than one of 169.254.0.0/16

  explicit SiblingPorts(const std::vector<JudgedPort>& ports) {
    const auto is_own = [](const JudgedPort& each) { return each.port->is_active() && has_own_address(*each.port); };
    is_own_meant = std::ranges::count_if(ports, is_own) >= 2 &&
                   std::ranges::none_of(ports, [](const JudgedPort& each) { return has_address(*each.port); });
    for (const JudgedPort& each : ports) {
      if (is_addressed(*each.port)) {
        any_routable = true;
        routable_models.insert(model_of(*each.device));
      }
      if (each.port->is_active()) {
        any_active = true;
        any_physical_active = any_physical_active || !is_virtual_function(*each.device);
        active_chips[chip_of(*each.device)].insert(card_of(*each.device));
      }
      if (!has_link(*each.port)) continue;
      linked_cards.insert(card_of(*each.device));
      linked_places[model_of(*each.device)][card_of(*each.device)].insert(place_of(each));
    }
  }

  [[nodiscard]] bool is_addressed(const PortFacts& port) const {
    return has_address(port) || (is_own_meant && has_own_address(port));
  }

  /// Whether no card of the port's chip has a link, and three or more of another chip have: it is for something else,
  /// or not in use.
  [[nodiscard]] bool is_of_idle_chip(const JudgedPort& each) const {
    constexpr std::size_t fewest_others = 3;
    return !active_chips.contains(chip_of(*each.device)) &&
           std::ranges::any_of(active_chips, [](const auto& chip) { return chip.second.size() >= fewest_others; });
  }

  /// Whether a port is cabled on all other cards of its model, two at least, and its own card is in use.
  [[nodiscard]] bool is_cabled_elsewhere(const JudgedPort& each) const {
    const std::string own = card_of(*each.device);
    const auto cards = linked_places.find(model_of(*each.device));
    if (cards == linked_places.end() || !cards->second.contains(own) || cards->second.size() < 3) return false;
    return std::ranges::all_of(
        cards->second, [&](const auto& card) { return card.first == own || card.second.contains(place_of(each)); });
  }

  /// Whether a port has no link although its own card has another, and all other cards of its model have this one, too,
  /// and more of them. Two cards with one cable each, in different places, are no such case (Summit's nodes).
  [[nodiscard]] bool is_unlike_other_cards(const JudgedPort& each) const {
    const std::string own = card_of(*each.device);
    const auto cards = linked_places.find(model_of(*each.device));
    if (cards == linked_places.end() || !cards->second.contains(own) || cards->second.size() < 2) return false;
    const std::size_t own_links = cards->second.at(own).size();
    return std::ranges::all_of(cards->second, [&](const auto& card) {
      return card.first == own || (card.second.contains(place_of(each)) && card.second.size() > own_links);
    });
  }

  /// Whether this place is without a link on all cards of the model, each of which has another in use: machines are
  /// sold and cabled so. Of a single card with two ports that is all there is to know.
  [[nodiscard]] bool is_idle_everywhere(const JudgedPort& each) const {
    const auto cards = linked_places.find(model_of(*each.device));
    return cards != linked_places.end() && cards->second.contains(card_of(*each.device)) &&
           std::ranges::none_of(cards->second, [&](const auto& card) { return card.second.contains(place_of(each)); });
  }
};

constexpr std::string_view idle_chip = "no card of its chip has a link";
constexpr std::string_view unlike_others = "another port of its card is cabled; the other cards have a link here, too";

/// The result for a node whose Ethernet could do RoCE although no setting says that it should: no port has an address
/// of its own, as under a virtual switch or a bridge. If RoCE is required, that is a fault.
bool is_plain_ethernet(const PortFacts& port, const SiblingPorts& siblings, const CheckRequest& request) {
  return port.layer() == LinkLayer::ethernet && !siblings.any_routable && port.gids_problem.empty() &&
         port.is_active() && request.policy != launch::RdmaPolicy::require && !request.expects(Sku::Fabric::roce);
}

/// Why a port that does not work is unused; nullopt if it should work.
std::optional<std::string> reason_unused(const NodeFacts& node, const JudgedPort& each, const SiblingPorts& siblings,
                                         const CheckRequest& request) {
  const PortFacts& port = *each.port;
  if (is_plain_ethernet(port, siblings, request)) return "no port of the node has an address";
  if (!port.is_active() && siblings.is_cabled_elsewhere(each)) return std::nullopt;
  const bool down = port.state.present() && parse_state(port.state.text) == PortState::down;
  const bool routable = siblings.is_addressed(port);
  if (port.layer() == LinkLayer::ethernet && siblings.any_routable && !routable && !port.is_active()) {
    return "it is down and has no address";
  }
  if (down && siblings.any_active) {
    const bool disabled =
        port.phys_state.present() && parse_physical_state(port.phys_state.text) == PhysicalState::disabled;
    const bool is_card_used = siblings.linked_cards.contains(card_of(*each.device));
    if (is_card_used && (!routable || siblings.is_idle_everywhere(each))) {
      if (!siblings.is_unlike_other_cards(each)) return "another port of its card is cabled";
      if (disabled || request.policy != launch::RdmaPolicy::require) return std::string(unlike_others);
      return std::nullopt;
    }
    if (disabled && !routable) return "it is switched off";
    if (siblings.is_of_idle_chip(each)) return std::string(idle_chip);
    if (is_virtual_function(*each.device) && siblings.any_physical_active) return "an idle virtual function";
  }
  if (port.layer() != LinkLayer::ethernet || routable || !siblings.any_routable) return std::nullopt;
  if (is_virtual_function(*each.device) && siblings.any_physical_active) return "an idle virtual function";
  if (is_enslaved(node, *each.device)) return "it belongs to a bond or bridge";
  if (!siblings.routable_models.contains(model_of(*each.device))) return "it has no address";
  return std::nullopt;
}

std::set<const DeviceFacts*> devices_of(const std::vector<JudgedPort>& ports) {
  std::set<const DeviceFacts*> devices;
  for (const JudgedPort& each : ports) devices.insert(each.device);
  return devices;
}

double rate_of(const PortFacts& port) {
  const auto rate = port.is_active() && port.rate.present() ? parse_rate(port.rate.text) : std::nullopt;
  return rate ? rate->gbps : 0;
}

/// Devices of another model than most, slower than the SKU promises: cards for storage or management.
std::set<const DeviceFacts*> slower_models(const std::vector<JudgedPort>& ports, const Sku& sku) {
  std::map<std::string, std::set<const DeviceFacts*>> devices;
  for (const JudgedPort& each : ports) devices[model_of(*each.device)].insert(each.device);
  std::set<const DeviceFacts*> out;
  if (!sku.devices || !sku.rate || devices.size() < 2) return out;
  const auto most = std::ranges::max_element(devices, {}, [](const auto& each) { return each.second.size(); });
  for (const auto& [model, members] : devices) {
    if (model == most->first) continue;
    std::ranges::copy_if(members, std::inserter(out, out.end()), [&](const DeviceFacts* device) {
      return std::ranges::all_of(device->ports, [&](const PortFacts& port) { return rate_of(port) < *sku.rate; });
    });
  }
  return out;
}

/// Where nobody has said what the fabric is: devices of another chip than most, at half their rate or less. NCCL would
/// take them, too, and send to the same place on other nodes over the network for storage or management.
std::set<const DeviceFacts*> slower_chips(const std::vector<JudgedPort>& ports) {
  constexpr std::size_t fewest_of_most = 3;
  struct Chip {
    std::set<const DeviceFacts*> devices;
    double rate = 0;
  };
  std::map<std::string, Chip> chips;
  for (const JudgedPort& each : ports) {
    if (!each.port->is_active()) continue;
    Chip& own = chips[chip_of(*each.device)];
    own.devices.insert(each.device);
    own.rate = std::max(own.rate, rate_of(*each.port));
  }
  std::set<const DeviceFacts*> out;
  if (chips.size() < 2) return out;
  const auto most = std::ranges::max_element(chips, {}, [](const auto& each) { return each.second.devices.size(); });
  if (most->second.devices.size() < fewest_of_most) return out;
  for (const auto& [name, chip] : chips) {
    const bool is_few = 2 * chip.devices.size() <= most->second.devices.size();
    if (name != most->first && is_few && 2 * chip.rate <= most->second.rate)
      out.insert(chip.devices.begin(), chip.devices.end());
  }
  return out;
}

/// Moves unused ports from `judged` to `unused`, unless the SKU's devices= needs them. `is_told`: a selection was made.
void set_unused_apart(const NodeFacts& node, const CheckRequest& request, bool is_told, PortChoice& choice) {
  const std::vector<JudgedPort> all = choice.judged;
  const SiblingPorts siblings(all);
  const bool is_counted = request.sku && request.sku->devices && request.sku->rate;
  const auto slower = is_counted ? slower_models(all, *request.sku)
                      : is_told  ? std::set<const DeviceFacts*>()
                                 : slower_chips(all);
  choice.judged.clear();
  for (const JudgedPort& each : all) {
    std::optional<std::string> why = is_unknown(each) ? std::nullopt : reason_unused(node, each, siblings, request);
    if (!why && slower.contains(each.device)) why = "a slower card of another model";
    if (why) choice.unused.push_back({each.name(), *why, *why == idle_chip || *why == unlike_others});
    else choice.judged.push_back(each);
  }
  const std::size_t expected = request.sku ? request.sku->devices.value_or(0) : 0;
  const auto remaining = devices_of(choice.judged);
  if (remaining.size() >= expected || remaining.size() + slower.size() >= devices_of(all).size()) return;
  choice.judged = all;
  std::erase_if(choice.judged, [&](const JudgedPort& each) { return slower.contains(each.device); });
  std::erase_if(choice.unused, [&](const UnusedPort& each) { return each.why != "a slower card of another model"; });
}

/// Whether a selection names this port by number, or its device exactly: then it is meant.
bool names_exactly(const NcclSelection& selection, const JudgedPort& each) {
  return !selection.excludes() && std::ranges::any_of(selection.entries(), [&](const NcclSelection::Entry& entry) {
    return entry.name == each.device->name && (entry.port || each.device->ports.size() == 1);
  });
}

/// What the user meant: to NCCL a blank is part of the name (see ib.env).
std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

/// The user's or the SKU's selection, if it leaves anything.
std::optional<NcclSelection> selection_of(const std::vector<JudgedPort>& ports, const CheckRequest& request) {
  const auto requested = request.environment("NCCL_IB_HCA");
  if (requested && !requested->empty()) {
    auto own = NcclSelection::parse(without_blanks(*requested));
    if (!selected(ports, own).empty()) return own;
  }
  if (request.sku && !request.sku->hca.empty()) return NcclSelection::parse(request.sku->hca);
  return std::nullopt;
}

}  // namespace

std::string model_of(const DeviceFacts& device) { return concat({device.hca_type.text, "/", device.board_id.text}); }

std::string place_of(const JudgedPort& each) {
  const std::string_view function = is_virtual_function(*each.device) ? std::string_view() : function_of(*each.device);
  return concat({function.substr(function.rfind('.') + 1), "/", std::to_string(each.port->number)});
}

PortChoice choose_ports(const NodeFacts& node, const CheckRequest& request) {
  std::vector<JudgedPort> ports = candidate_ports(node, request);
  const auto selection = selection_of(ports, request);
  PortChoice choice;
  if (!selection) {
    choice.judged = of_layer(ports, expected_layer(ports, request));
    set_unused_apart(node, request, false, choice);
    return choice;
  }
  ports = selected(std::move(ports), *selection);
  if (selection->excludes() || selection->entries().empty()) ports = of_layer(ports, expected_layer(ports, request));
  choice.judged = ports;
  set_unused_apart(node, request, true, choice);
  std::vector<JudgedPort> kept;
  for (const JudgedPort& each : ports) {
    const bool judged = std::ranges::any_of(choice.judged, [&](const auto& other) { return other.port == each.port; });
    if (judged || names_exactly(*selection, each)) kept.push_back(each);
  }
  choice.judged = std::move(kept);
  return choice;
}

std::vector<JudgedPort> judged_ports(const NodeFacts& node, const CheckRequest& request) {
  return choose_ports(node, request).judged;
}

std::vector<JudgedPort> active_ports(const NodeFacts& node, const CheckRequest& request) {
  auto ports = judged_ports(node, request);
  std::erase_if(ports, [](const JudgedPort& each) { return !each.port->is_active(); });
  return ports;
}

std::vector<const DeviceFacts*> counted_devices(const NodeFacts& node, const CheckRequest& request) {
  std::vector<JudgedPort> ports = candidate_ports(node, request);
  if (request.sku && !request.sku->hca.empty()) {
    ports = selected(std::move(ports), NcclSelection::parse(request.sku->hca));
  }
  ports = of_layer(ports, expected_layer(ports, request));
  std::erase_if(ports, is_unknown);
  const auto slower = request.sku ? slower_models(ports, *request.sku) : std::set<const DeviceFacts*>();
  std::vector<const DeviceFacts*> devices;
  for (const JudgedPort& each : ports) {
    const bool seen = !devices.empty() && devices.back() == each.device;
    if (!seen && !slower.contains(each.device)) devices.push_back(each.device);
  }
  return devices;
}

}  // namespace amldist::fabric
