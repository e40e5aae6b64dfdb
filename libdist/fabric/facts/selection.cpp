#include "fabric/facts/selection.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

constexpr std::size_t most_entries = 32;  // MAX_IB_DEVS: NCCL ignores further entries

/// atoi(): leading blanks, a sign, digits, no errors.
int as_atoi(std::string_view text) {
  const std::string copy(text.substr(0, 32));
  return static_cast<int>(std::strtol(copy.c_str(), nullptr, 10));
}

/// Compares by prefix unless exact: strncmp() with the entry's length, or with the device's including its NUL.
bool name_matches(std::string_view device, std::string_view entry, bool exact) noexcept {
  return exact ? device == entry : device.starts_with(entry);
}

bool port_matches(const std::optional<int>& entry, std::uint32_t port) noexcept {
  return !entry || *entry == -1 || *entry == static_cast<int>(port);
}

/// UCX transports that use verbs, and the aliases that include some of them.
bool is_verbs_transport(std::string_view name) {
  constexpr std::array<std::string_view, 17> names = {"all",     "ib",   "rc",      "rc_v", "rc_x",     "rc_verbs",
                                                      "rc_mlx5", "ud",   "ud_v",    "ud_x", "ud_verbs", "ud_mlx5",
                                                      "dc",      "dc_x", "dc_mlx5", "gga",  "gga_mlx5"};
  return std::ranges::find(names, name) != names.end();
}

int roce_version(const GidEntry& entry) noexcept {
  if (entry.type.starts_with("RoCE v2")) return 2;
  return entry.type.starts_with("IB/RoCE v1") || entry.type.starts_with("RoCE v1") ? 1 : -1;
}

/// The entry at an index; a zero GID if the table lacks it.
GidEntry entry_at(const PortFacts& port, std::uint32_t index) {
  const auto found = std::ranges::find(port.gids, index, &GidEntry::index);
  return found == port.gids.end() ? GidEntry{index, {}, "", ""} : *found;
}

/// "fd00::/64": the leading bits that a GID must have.
struct Ipv6Range {
  std::array<std::uint8_t, 16> bytes{};
  std::uint32_t bits = 0;

  [[nodiscard]] static std::optional<Ipv6Range> parse(const std::string& text) {
    const auto slash = text.find('/');
    const auto bits = slash == std::string::npos ? std::nullopt : text::to_number(text.substr(slash + 1), 128);
    Ipv6Range out;
    if (!bits || ::inet_pton(AF_INET6, text.substr(0, slash).c_str(), out.bytes.data()) != 1) return std::nullopt;
    out.bits = static_cast<std::uint32_t>(*bits);
    return out;
  }

  [[nodiscard]] bool contains(const Gid& gid) const noexcept {
    const std::size_t whole = bits / 8;
    const auto rest = static_cast<std::uint8_t>(0xff00U >> (bits % 8));
    return std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole), gid.bytes.begin()) &&
           (whole == bytes.size() || ((bytes[whole] ^ gid.bytes[whole]) & rest) == 0);
  }
};

/// NCCL's variables about the GIDs that it may choose.
struct GidPreference {
  bool ipv4 = true;
  int version = 2;
  std::optional<Ipv4Network> range;
  std::optional<Ipv6Range> range6;

  [[nodiscard]] bool in_range(const Gid& gid) const noexcept {
    if (!ipv4) return !range6 || range6->contains(gid);
    if (!range) return true;
    const auto word = std::uint32_t{gid.bytes[12]} << 24 | std::uint32_t{gid.bytes[13]} << 16 |
                      std::uint32_t{gid.bytes[14]} << 8 | gid.bytes[15];
    return range->contains({word});
  }
};

GidPreference read_preference(const EnvironmentReader& environment) {
  GidPreference preference;
  preference.ipv4 = environment("NCCL_IB_ADDR_FAMILY").value_or("AF_INET") != "AF_INET6";
  preference.version = static_cast<int>(nccl_parameter(environment, "NCCL_IB_ROCE_VERSION_NUM").value_or(2));
  if (const auto range = environment("NCCL_IB_ADDR_RANGE")) {
    preference.range = Ipv4Network::parse(*range);
    preference.range6 = Ipv6Range::parse(*range);
  }
  return preference;
}

bool is_usable(const Gid& gid) noexcept { return !gid.is_zero() && !gid.is_link_local(); }

/// Whether NCCL's scan replaces `current` by `candidate` (ncclUpdateGidIndex).
bool is_better(const GidEntry& candidate, const GidEntry& current, const GidPreference& preference) noexcept {
  const bool family = candidate.value.is_ipv4() == preference.ipv4;
  const bool current_family = current.value.is_ipv4() == preference.ipv4;
  const bool in_range = preference.in_range(candidate.value);
  if (family && !current_family && in_range) return true;
  if (!family || !is_usable(candidate.value) || !in_range) return false;
  const bool differs = roce_version(candidate) != roce_version(current) || !is_usable(current.value);
  return differs && roce_version(candidate) == preference.version;
}

}  // namespace

NcclSelection NcclSelection::parse(std::string_view text, Grammar grammar) {
  constexpr std::size_t longest_name = 63;  // NCCL's buffer; the rest is cut off
  NcclSelection out;
  out.exclude_ = text.starts_with('^');
  if (out.exclude_) text.remove_prefix(1);
  out.exact_ = text.starts_with('=');
  if (out.exact_) text.remove_prefix(1);
  const bool older = grammar == Grammar::before_2_30;
  if (older && (text.starts_with('^') || text.starts_with('='))) text.remove_prefix(1);
  for (const std::string_view piece : text::split(text, ',')) {
    const auto colon = piece.find(':');
    const std::string_view name = piece.substr(0, std::min(colon, piece.size()));
    if (name.empty() || out.entries_.size() == most_entries) continue;
    Entry entry{std::string(name.substr(0, older ? name.size() : longest_name)), std::nullopt};
    if (colon != std::string_view::npos) {
      const std::string_view port = text::split(piece.substr(colon + 1), ':').front();
      if (older || !port.empty()) entry.port = as_atoi(port);
    }
    out.entries_.push_back(std::move(entry));
  }
  return out;
}

bool NcclSelection::takes(std::string_view device, std::uint32_t port) const noexcept {
  const bool listed = entries_.empty() || std::ranges::any_of(entries_, [&](const Entry& entry) {
                        return name_matches(device, entry.name, exact_) && port_matches(entry.port, port);
                      });
  return listed != exclude_;
}

bool NcclSelection::takes_by_prefix_only(std::string_view device, std::uint32_t port) const noexcept {
  if (entries_.empty() || exact_ || exclude_ || !takes(device, port)) return false;
  return std::ranges::none_of(entries_, [&](const Entry& entry) {
    return name_matches(device, entry.name, true) && port_matches(entry.port, port);
  });
}

namespace {

/// Whether a name matches a pattern with at most one range: "mlx5_ib[0-7]:1".
bool fits_range(std::string_view pattern, std::string_view name) {
  const auto open = pattern.find('[');
  const auto close = pattern.find(']', std::min(open, pattern.size()));
  if (open == std::string_view::npos || close == std::string_view::npos) return pattern == name;
  const std::string_view range = pattern.substr(open + 1, close - open - 1);
  const auto dash = range.find('-');
  const auto first = text::to_number(range.substr(0, std::min(dash, range.size())), 65535);
  const auto last = dash == std::string_view::npos ? first : text::to_number(range.substr(dash + 1), 65535);
  const std::string_view tail = pattern.substr(close + 1);
  if (!first || !last || !name.starts_with(pattern.substr(0, open)) || !name.ends_with(tail)) return false;
  if (name.size() < open + tail.size()) return false;
  const auto number = text::to_number(name.substr(open, name.size() - open - tail.size()), 65535);
  return number && *first <= *number && *number <= *last;
}

}  // namespace

UcxSelection UcxSelection::parse(std::string_view text) {
  UcxSelection out;
  text = text::trim(text);
  out.exclude_ = text.starts_with('^');
  if (out.exclude_) text.remove_prefix(1);
  for (const std::string_view piece : text::split(text, ',')) {
    const std::string_view name = text::trim(piece);
    if (!name.empty()) out.names_.emplace_back(name);
  }
  return out;
}

bool UcxSelection::takes(std::string_view device, std::uint32_t port) const {
  const std::string name = text::concat({device, ":", std::to_string(port)});
  const bool listed =
      std::ranges::any_of(names_, [&](const std::string& each) { return each == "all" || fits_range(each, name); });
  return listed != exclude_;
}

std::optional<bool> ucx_allows_verbs(std::string_view transports) {
  const bool negated = transports.starts_with('^');
  if (negated) transports.remove_prefix(1);
  bool any = false;
  bool ib_or_all = false;
  for (std::string_view name : text::split(transports, ',')) {
    name = text::trim(name);
    if (name.starts_with('\\')) name.remove_prefix(1);
    name = name.substr(0, name.find(':'));
    any = any || is_verbs_transport(name);
    ib_or_all = ib_or_all || name == "ib" || name == "all";
  }
  if (!negated) return any;
  if (ib_or_all) return false;
  return any ? std::nullopt : std::optional(true);
}

std::optional<std::int64_t> nccl_parameter(const EnvironmentReader& environment, std::string_view name) {
  const auto value = environment(name);
  if (!value || value->empty()) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value->c_str(), &end, 0);
  if (errno != 0 || end == value->c_str()) return std::nullopt;
  return number;
}

bool nccl_uses(const EnvironmentReader& environment, const DeviceFacts& device, const PortFacts& port) {
  if (!port.is_active() || port.layer() == LinkLayer::other) return false;
  return NcclSelection::parse(environment("NCCL_IB_HCA").value_or("")).takes(device.name, port.number);
}

std::uint32_t nccl_gid_index(const EnvironmentReader& environment, const PortFacts& port) {
  if (port.layer() == LinkLayer::infiniband) {
    const auto routable = nccl_parameter(environment, "NCCL_IB_ROUTABLE_FLID_GID_INDEX").value_or(1);
    if (routable < 0 || routable > 65535) return 0;
    const auto index = static_cast<std::uint32_t>(routable);
    return entry_at(port, index).value.flid() != 0 ? index : 0;
  }
  if (const auto wanted = nccl_parameter(environment, "NCCL_IB_GID_INDEX"); wanted && *wanted >= 0) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(*wanted, 65535));
  }
  const GidPreference preference = read_preference(environment);
  GidEntry chosen = entry_at(port, 0);
  for (const GidEntry& candidate : port.gids) {
    if (candidate.index > 0 && is_better(candidate, chosen, preference)) chosen = candidate;
  }
  return chosen.index;
}

std::uint32_t working_gid_index(const EnvironmentReader& environment, const PortFacts& port) {
  const auto works = [](const GidEntry& entry) { return roce_version(entry) == 2 && is_usable(entry.value); };
  const std::uint32_t chosen = nccl_gid_index(environment, port);
  const auto is_said = [&environment](std::string_view name) { return environment(name).value_or("") != ""; };
  const bool is_users = is_said("NCCL_IB_GID_INDEX") || is_said("NCCL_IB_ADDR_FAMILY") ||
                        is_said("NCCL_IB_ADDR_RANGE") || is_said("NCCL_IB_ROCE_VERSION_NUM");
  if (port.layer() != LinkLayer::ethernet || is_users || works(entry_at(port, chosen))) return chosen;
  const auto first = std::ranges::find_if(port.gids, works);
  return first != port.gids.end() ? first->index : chosen;
}

EnvironmentReader snapshot(const EnvironmentReader& environment) {
  constexpr std::array<std::string_view, 17> names = {
      "NCCL_IB_HCA",         "NCCL_IB_GID_INDEX",        "NCCL_IB_PKEY",
      "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",       "NCCL_IB_ROUTABLE_FLID_GID_INDEX",
      "NCCL_IB_DISABLE",     "NCCL_IB_ROCE_VERSION_NUM", "NCCL_NET",
      "NCCL_NET_GDR_LEVEL",  "NCCL_IB_GDR_LEVEL",        "NCCL_IB_CUDA_SUPPORT",
      "NCCL_DMABUF_ENABLE",  "UCX_NET_DEVICES",          "UCX_TLS",
      "UCX_IB_PKEY",         "UCX_IB_GID_INDEX"};
  std::map<std::string, std::string, std::less<>> values;
  for (const std::string_view name : names) {
    if (auto value = environment(name)) values.emplace(name, std::move(*value));
  }
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string exact_selection(const std::vector<PortName>& ports) {
  std::string out = "=";
  for (const PortName& port : ports) {
    if (out.size() > 1) out += ',';
    out += port.to_string();
  }
  return out;
}

}  // namespace amldist::fabric
