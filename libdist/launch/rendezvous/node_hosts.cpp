#include "launch/rendezvous/node_hosts.hpp"

#include <algorithm>
#include <utility>

#include "base/text/text.hpp"
#include "launch/option/spec.hpp"

namespace amldist::launch {

using text::concat;

NodeHosts NodeHosts::names(std::string suffix) {
  NodeHosts out;
  out.suffix_ = std::move(suffix);
  return out;
}

NodeHosts NodeHosts::addresses(std::span<const Ipv4> nodes) {
  NodeHosts out;
  for (const Ipv4 address : nodes) out.append(address, 1);
  return out;
}

std::uint32_t NodeHosts::end_of(std::size_t run) const noexcept {
  return run + 1 < runs_.size() ? runs_[run + 1].node : nodes_;
}

void NodeHosts::append(Ipv4 first, std::uint32_t count) {
  const bool goes_on =
      !runs_.empty() && runs_.back().address.bits + (nodes_ - runs_.back().node) == first.bits && first.bits != 0;
  if (!goes_on) runs_.push_back({nodes_, first});
  nodes_ += count;
}

std::optional<NodeHosts> NodeHosts::parse(std::string_view text) {
  NodeHosts out;
  if (text.starts_with('*')) {
    out.suffix_ = text.substr(1);
    if (out.suffix_.empty() || !is_host(concat({"n", out.suffix_}))) return std::nullopt;
    return out;
  }
  for (const std::string_view piece : text::split(text, ',')) {
    const auto dash = piece.find('-');
    const bool range = dash != std::string_view::npos;
    const auto first = Ipv4::parse(piece.substr(0, dash));
    const auto last = range ? Ipv4::parse(piece.substr(dash + 1)) : first;
    if (!first || !last || last->bits < first->bits || (range && last->bits == first->bits)) return std::nullopt;
    const std::uint64_t count = std::uint64_t{last->bits} - first->bits + 1;
    if (count > Hostlist::most_hosts - out.nodes_) return std::nullopt;
    const std::size_t runs = out.runs_.size();
    out.append(*first, static_cast<std::uint32_t>(count));
    if (out.runs_.size() == runs) return std::nullopt;  // srun would have written one range
  }
  return out;
}

std::string NodeHosts::to_string() const {
  if (!suffix_.empty()) return concat({"*", suffix_});
  std::string out;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const std::uint32_t more = end_of(run) - runs_[run].node - 1;
    const Ipv4 last{runs_[run].address.bits + more};
    out += concat({run == 0 ? "" : ",", runs_[run].address.to_string(), more == 0 ? "" : "-",
                   more == 0 ? std::string() : last.to_string()});
  }
  return out;
}

std::string NodeHosts::host_of(const Hostlist& hosts, std::uint32_t node) const {
  if (runs_.empty() || node >= nodes_) return hosts.at(node) + suffix_;
  const auto next = std::ranges::upper_bound(runs_, node, {}, &Run::node);
  const Run& run = *std::prev(next);
  return Ipv4{run.address.bits + (node - run.node)}.to_string();
}

}  // namespace amldist::launch
