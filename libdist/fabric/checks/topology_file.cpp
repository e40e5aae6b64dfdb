#include "fabric/checks/topology_file.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t deepest = 32;
constexpr std::size_t most_functions = 1024;

Error topology_error(std::string_view what) {
  return {Errc::invalid_argument, concat({"is not a topology file of NCCL: ", what})};
}

/// `name="value"` of an element; empty: it is not there.
std::string_view value_in(std::string_view element, std::string_view name) {
  for (auto at = element.find(name); at != std::string_view::npos; at = element.find(name, at + 1)) {
    const bool begins = at > 0 && (element[at - 1] == ' ' || element[at - 1] == '\t' || element[at - 1] == '\n');
    const std::string_view rest = element.substr(at + name.size());
    if (!begins || !rest.starts_with("=\"")) continue;
    const auto end = rest.find('"', 2);
    return end == std::string_view::npos ? std::string_view() : rest.substr(2, end - 2);
  }
  return {};
}

struct OpenElement {
  std::string name;
  std::string address;    ///< of <pci>
  std::string numa_node;  ///< of <cpu>
};

/// What has been read so far.
class TopologyReader {
 public:
  [[nodiscard]] std::optional<Error> open(std::string_view element, bool closes_itself) {
    const std::string_view name = element.substr(0, element.find_first_of(" \t\r\n"));
    OpenElement own{std::string(name), {}, {}};
    if (name == "pci") own.address = text::to_lower(value_in(element, "busid"));
    if (name == "cpu") own.numa_node = value_in(element, "numaid");
    if (name == "pci") add(own.address, value_in(element, "class"));
    if (!closes_itself) open_.push_back(std::move(own));
    if (open_.size() > deepest) return topology_error("too many elements lie in each other");
    if (functions_.size() > most_functions) return topology_error("it has too many elements");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> close(std::string_view name) {
    if (open_.empty() || open_.back().name != name) return topology_error("it closes an element that is not open");
    open_.pop_back();
    return std::nullopt;
  }

  [[nodiscard]] Result<std::vector<PlacedFunction>> finish() {
    if (!open_.empty()) return topology_error("it is cut off");
    const auto gpus = std::ranges::count_if(functions_, &PlacedFunction::gpu);
    if (gpus == 0 || static_cast<std::size_t>(gpus) == functions_.size())
      return topology_error("no GPU or no card in it");
    return std::move(functions_);
  }

 private:
  /// PCI classes 0x03 (display) and 0x12 (accelerator), or 0x02 (network); bridges are neither.
  void add(const std::string& address, std::string_view pci_class) {
    const bool gpu = pci_class.starts_with("0x03") || pci_class.starts_with("0x12");
    if (address.empty() || (!gpu && !pci_class.starts_with("0x02"))) return;
    PlacedFunction own{address, gpu, "", {}};
    for (const OpenElement& each : open_) {
      if (each.name == "cpu") own.numa_node = each.numa_node;
      if (each.name == "pci") own.bridges.push_back(each.address);
    }
    functions_.push_back(std::move(own));
  }

  std::vector<OpenElement> open_;
  std::vector<PlacedFunction> functions_;
};

/// 2: below one bridge, 1: on one NUMA node, 0: neither.
int closeness(const PlacedFunction& one, const PlacedFunction& other) {
  if (!one.bridges.empty() && !other.bridges.empty() && one.bridges.front() == other.bridges.front()) return 2;
  return !one.numa_node.empty() && one.numa_node == other.numa_node ? 1 : 0;
}

const GpuFacts* gpu_at(const NodeFacts& node, std::string_view address) {
  const auto found = std::ranges::find(node.gpus, address, &GpuFacts::address);
  return found == node.gpus.end() ? nullptr : &*found;
}

const DeviceFacts* card_at(const NodeFacts& node, std::string_view address) {
  const auto found = std::ranges::find_if(node.devices, [address](const DeviceFacts& each) {
    return each.pci.path.ends_with(concat({"/", address}));
  });
  return found == node.devices.end() ? nullptr : &*found;
}

bool lies_elsewhere(const GpuFacts& gpu, const DeviceFacts& card) {
  const Attribute& one = gpu.numa_node;
  const Attribute& other = card.pci.numa_node;
  const bool known = one.present() && other.present() && one.text != "-1" && other.text != "-1";
  return known && one.text != other.text && !share_bridge(gpu.path, card.pci.path);
}

}  // namespace

Result<std::vector<PlacedFunction>> parse_topology(std::string_view content) {
  TopologyReader reader;
  for (auto at = content.find('<'); at != std::string_view::npos; at = content.find('<')) {
    content.remove_prefix(at);
    const bool comment = content.starts_with("<!--");
    const auto end = content.find(comment ? "-->" : ">");
    if (end == std::string_view::npos) return topology_error("it is cut off");
    std::string_view element = content.substr(1, end - 1);
    content.remove_prefix(end + 1);
    if (comment || element.starts_with('?') || element.starts_with('!')) continue;
    const bool closes_itself = element.ends_with('/');
    if (closes_itself) element.remove_suffix(1);
    const auto wrong = element.starts_with('/') ? reader.close(element.substr(1)) : reader.open(element, closes_itself);
    if (wrong) return *wrong;
  }
  return reader.finish();
}

Check check_topology(const NodeFacts& node, const std::vector<PlacedFunction>& expected) {
  constexpr std::string_view moved = "a device is lost or the machine is another size: replace the node";
  std::vector<Finding> findings;
  for (const PlacedFunction& each : expected) {
    const bool there = each.gpu ? gpu_at(node, each.address) != nullptr : card_at(node, each.address) != nullptr;
    if (there) continue;
    findings.push_back({Verdict::fail,
                        concat({each.gpu ? "no GPU at " : "no RDMA device at ", printable(each.address, 32)}),
                        std::string(moved)});
  }
  for (const PlacedFunction& gpu : expected) {
    const GpuFacts* const own = gpu.gpu ? gpu_at(node, gpu.address) : nullptr;
    if (own == nullptr) continue;
    int nearest = 0;
    for (const PlacedFunction& card : expected) nearest = card.gpu ? nearest : std::max(nearest, closeness(gpu, card));
    for (const PlacedFunction& card : expected) {
      const DeviceFacts* const device = card.gpu ? nullptr : card_at(node, card.address);
      if (device == nullptr || nearest == 0 || closeness(gpu, card) < nearest || !lies_elsewhere(*own, *device))
        continue;
      findings.push_back({Verdict::fail,
                          concat({"GPU ", own->address, " (NUMA node ", own->numa_node.shown(), ") is far from ",
                                  device->name, " (", device->pci.numa_node.shown(), "), the file has them together"}),
                          "a card is in the wrong slot, or the virtual machine's topology is broken"});
    }
  }
  if (findings.empty()) {
    findings.push_back(
        {Verdict::pass, concat({text::count(expected.size(), "device"), " where the file has them"}), ""});
  }
  return join_findings("gpu.topology", findings, "");
}

}  // namespace amldist::fabric
