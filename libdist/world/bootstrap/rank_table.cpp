#include "world/bootstrap/rank_table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <unordered_map>

#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

/// Precedes the arrays: entries, then vertices and ports by rank, then the hosts' names.
struct Head {
  std::uint64_t mark;
  std::uint64_t nonce;
  std::uint32_t ranks;
  std::uint32_t vertices;
  std::uint64_t text_bytes;
};

constexpr std::uint64_t table_mark =
    0x616d6c7461626c32;  // "amltabl2"; on a machine of the other byte order it does not match

template <typename T>
void append(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

struct Places {
  std::size_t entries = sizeof(Head);
  std::size_t vertices;
  std::size_t ports;
  std::size_t text;
  explicit Places(const Head& head)
      : vertices(entries + std::size_t{head.vertices} * sizeof(RankTable::Entry)),
        ports(vertices + std::size_t{head.ranks} * sizeof(std::uint32_t)),
        text(ports + std::size_t{head.ranks} * sizeof(std::uint16_t)) {}
};

}  // namespace

std::string table_bytes(std::uint64_t nonce, std::span<const TableNode> nodes, std::span<const TableRank> ranks) {
  std::vector<RankTable::Entry> entries;
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  std::string text;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const TableNode& node = nodes[i];
    entries.push_back({node.address.bytes, node.leader, by_name.try_emplace(node.name, i).first->second,
                       static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(node.host.size())});
    text += node.host;
  }
  const Head head = {table_mark, nonce, static_cast<std::uint32_t>(ranks.size()),
                     static_cast<std::uint32_t>(nodes.size()), text.size()};
  std::vector<std::uint32_t> vertices;
  std::vector<std::uint16_t> ports;
  for (const TableRank& rank : ranks) {
    vertices.push_back(rank.vertex);
    ports.push_back(rank.port);
  }
  std::string out;
  out.reserve(Places(head).text + text.size());
  append(out, std::span(&head, 1));
  append(out, std::span<const RankTable::Entry>(entries));
  append(out, std::span<const std::uint32_t>(vertices));
  append(out, std::span<const std::uint16_t>(ports));
  return out + text;
}

std::vector<std::uint32_t> RankTable::local_ranks() const {
  std::vector<std::uint32_t> next(entries_.size());  // by node, which has the number of one of its entries
  std::vector<std::uint32_t> ranks;
  ranks.reserve(size());
  for (std::uint32_t rank = 0; rank < size(); ++rank) ranks.push_back(next[node_of(rank)]++);
  return ranks;
}

Result<RankTable> RankTable::read(std::string bytes, std::uint32_t size, const IpAddress& root) {
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  return read(Storage{*owner, owner}, size, root);
}

Result<RankTable> RankTable::read(Storage storage, std::uint32_t size, const IpAddress& root) {
  const Error wrong = {Errc::peer, "the rank table is malformed: do all ranks use the same release of aml-dist?"};
  const std::string_view bytes = storage.bytes;
  Head head = {};
  if (bytes.size() < sizeof head || reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(Head) != 0) return wrong;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.mark != table_mark || head.ranks != size || head.vertices == 0 || head.vertices > size) return wrong;
  const Places at(head);
  if (bytes.size() < at.text || bytes.size() - at.text != head.text_bytes) return wrong;
  RankTable out;
  out.nonce_ = head.nonce;
  out.root_ = root;
  out.entries_ = {reinterpret_cast<const Entry*>(bytes.data() + at.entries), head.vertices};
  out.vertex_of_rank_ = {reinterpret_cast<const std::uint32_t*>(bytes.data() + at.vertices), size};
  out.port_of_rank_ = {reinterpret_cast<const std::uint16_t*>(bytes.data() + at.ports), size};
  const std::string_view text = bytes.substr(at.text);
  const auto is_vertex = [&](std::uint32_t vertex) { return vertex < head.vertices; };
  if (!std::ranges::all_of(out.vertex_of_rank_, is_vertex)) return wrong;
  for (std::uint32_t vertex = 0; vertex < head.vertices; ++vertex) {
    const Entry& entry = out.entries_[vertex];
    const bool has_host = entry.host_at <= text.size() && entry.host_length <= text.size() - entry.host_at;
    if (!has_host || entry.leader >= size || out.vertex_of_rank_[entry.leader] != vertex || entry.node > vertex) {
      return wrong;
    }
    out.hosts_.push_back(
        text::printable(std::string(text.substr(entry.host_at, entry.host_length)), world::limits.host_characters));
  }
  out.storage_ = std::move(storage);
  return out;
}

IpAddress RankTable::address_of(std::uint32_t rank) const noexcept {
  IpAddress address;
  address.bytes = entries_[vertex_of(rank)].address;
  return address.is_unspecified() ? root_ : address;
}

}  // namespace amldist::world
