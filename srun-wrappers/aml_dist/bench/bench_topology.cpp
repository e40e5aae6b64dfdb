#include "aml_dist/bench/bench_topology.hpp"

#include <amldist/amldist.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "aml_dist/bench/latency_groups.hpp"
#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using Matrix = std::vector<std::vector<double>>;

constexpr int most_measured_ranks = 256;  // 32,640 pairs

// ---- where the ranks are ----
/// Binds this thread, which makes the calls, so that its processor is known.
void bind_to_one_of(const std::vector<int>& processors, const World& world) {
  const auto local = static_cast<std::size_t>(amldist_local_rank(world.comm()));
  const auto ranks = static_cast<std::size_t>(amldist_local_size(world.comm()));
  if (processors.size() >= std::max<std::size_t>(2, ranks)) bind_to_processor(0, processors[local]);
}

Result<std::vector<RankPlace>> find_places(const World& world) {
  bind_to_one_of(own_processors(), world);
  const int processor = ::sched_getcpu();
  const ProcessorPlace place = place_of_processor(processor);
  constexpr std::size_t width = 5;
  const std::array<std::int32_t, width> own = {processor, own_processors().size() == 1 ? 1 : 0, place.cache,
                                               place.memory, place.socket};
  std::vector<std::array<std::int32_t, width>> all(static_cast<std::size_t>(world.size()));
  if (amldist_allgather(world.comm(), own.data(), all.data(), width, AMLDIST_INT32) != AMLDIST_OK)
    return library_error();
  std::vector<RankPlace> places;
  places.reserve(all.size());
  for (const auto& [number, is_bound, cache, memory, socket] : all) {
    const char* const host = amldist_host(world.comm(), static_cast<int>(places.size()));
    places.push_back({host != nullptr ? host : "?", number, is_bound != 0, {cache, memory, socket}});
  }
  return places;
}

// ---- the latency of a message ----
/// Nanoseconds of a message there, or back, as seen by the first of the two; the least of some attempts.
Result<double> time_messages(amldist_comm* comm, int peer, bool is_first, std::size_t bytes, int attempts, int turns) {
  std::vector<std::byte> buffer(bytes);
  double least = 0;
  for (int attempt = 0; attempt <= attempts; ++attempt) {  // the first one warms up
    const auto start = std::chrono::steady_clock::now();
    for (int turn = 0; turn < 2 * turns; ++turn) {
      const bool sends = (turn % 2 == 0) == is_first;
      const int status = sends ? amldist_send(comm, buffer.data(), bytes, AMLDIST_UINT8, peer)
                               : amldist_recv(comm, buffer.data(), bytes, AMLDIST_UINT8, peer);
      if (status != AMLDIST_OK) return library_error();
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    const double each = taken.count() / (2.0 * turns);
    if (attempt > 0 && (least == 0 || each < least)) least = each;
  }
  return least;
}

struct PairTime {
  double latency_ns = 0;
  double bandwidth_gbs = 0;
};

Result<PairTime> measure_pair(amldist_comm* comm, int peer, bool is_first) {
  constexpr std::size_t large = std::size_t{1} << 20;
  const auto latency = time_messages(comm, peer, is_first, 4, 8, 32);
  if (!latency) return latency.error();
  const auto transfer = time_messages(comm, peer, is_first, large, 4, 2);
  if (!transfer) return transfer.error();
  return PairTime{*latency, static_cast<double>(large) / *transfer};
}

/// One pair at a time: two that measure at once would wait for each other's memory.
Result<void> measure_pairs(const World& world, NodeTopology& out,
                           const std::function<void(std::string_view)>& progress) {
  const auto size = static_cast<std::size_t>(world.size());
  const auto own = static_cast<std::size_t>(world.rank());
  std::vector<double> measured(2 * size * size);
  const std::size_t pairs = size * (size - 1) / 2;
  std::size_t done = 0;
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = a + 1; b < size; ++b) {
      progress(concat({"pair ", std::to_string(++done), " of ", std::to_string(pairs)}));
      if (own == a || own == b) {
        const auto pair = measure_pair(world.comm(), static_cast<int>(own == a ? b : a), own == a);
        if (!pair) return pair.error();
        if (own == a) {
          measured[a * size + b] = pair->latency_ns;
          measured[size * size + a * size + b] = pair->bandwidth_gbs;
        }
      }
      if (amldist_barrier(world.comm()) != AMLDIST_OK) return library_error();
    }
  }
  if (amldist_allreduce(world.comm(), measured.data(), measured.data(), measured.size(), AMLDIST_FLOAT64,
                        AMLDIST_SUM) != AMLDIST_OK)
    return library_error();
  out.latency_ns.assign(size, std::vector<double>(size));
  out.bandwidth_gbs = out.latency_ns;
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = a + 1; b < size; ++b) {
      out.latency_ns[a][b] = out.latency_ns[b][a] = measured[a * size + b];
      out.bandwidth_gbs[a][b] = out.bandwidth_gbs[b][a] = measured[size * size + a * size + b];
    }
  }
  return {};
}

// ---- groups ----
std::string words_of(const std::vector<std::vector<int>>& groups) {
  std::string out;
  for (const auto& group : groups) {
    out += out.empty() ? "{" : " {";
    for (std::size_t i = 0; i < group.size(); ++i) out += (i == 0 ? "" : ",") + std::to_string(group[i]);
    out += "}";
  }
  return out;
}

/// The same groups according to the kernel; empty unless it describes every rank.
std::vector<std::vector<int>> groups_by(const NodeTopology& topology, int ProcessorPlace::*which) {
  std::vector<std::pair<std::pair<std::string, int>, std::vector<int>>> known;
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    const RankPlace& each = topology.ranks[rank];
    if (each.place.*which < 0) return {};
    const std::pair<std::string, int> key = {each.host, each.place.*which};
    auto found = std::ranges::find(known, key, [](const auto& one) { return one.first; });
    if (found == known.end()) found = known.insert(known.end(), {key, {}});
    found->second.push_back(static_cast<int>(rank));
  }
  std::vector<std::vector<int>> groups;
  groups.reserve(known.size());
  for (auto& [key, group] : known) groups.push_back(std::move(group));
  return groups;
}

struct KindOfGroup {
  std::string_view name;
  int ProcessorPlace::*which;
};
constexpr std::array<KindOfGroup, 3> kinds = {{{"last-level cache", &ProcessorPlace::cache},
                                               {"NUMA node", &ProcessorPlace::memory},
                                               {"socket", &ProcessorPlace::socket}}};

/// How the kernel's groups compare with the measured ones.
std::string comparison(const NodeTopology& topology) {
  std::string out = concat({"near each other, as measured: ", words_of(topology.groups), "\n"});
  for (const KindOfGroup& kind : kinds) {
    const auto groups = groups_by(topology, kind.which);
    const std::string_view relation = groups.empty()              ? "the kernel does not say"
                                      : groups == topology.groups ? "the same"
                                                                  : "a different division";
    out += concat({"by ", kind.name, ": ", groups.empty() ? "" : words_of(groups) + ", ", relation, "\n"});
  }
  const bool all_bound = std::ranges::all_of(topology.ranks, &RankPlace::is_bound);
  if (!all_bound) out += "ranks without a processor of their own (*) may move while they are measured\n";
  return out;
}

std::string number_or_unknown(int number) { return number < 0 ? "?" : std::to_string(number); }

std::string matrix_table(const Matrix& values, std::string_view title, int digits) {
  std::vector<std::vector<std::string>> table = {{std::string(title)}};
  for (std::size_t b = 0; b < values.size(); ++b) table.front().push_back(std::to_string(b));
  for (std::size_t a = 0; a < values.size(); ++a) {
    table.push_back({std::to_string(a)});
    for (std::size_t b = 0; b < values.size(); ++b) {
      table.back().push_back(a == b ? "-" : decimal(values[a][b], digits));
    }
  }
  return format_table(table);
}

}  // namespace

Result<NodeTopology> measure_topology(const World& world, const std::function<void(std::string_view)>& progress) {
  if (world.size() > most_measured_ranks) {
    return Error{Errc::invalid_argument,
                 concat({"--topology measures each pair of at most ", std::to_string(most_measured_ranks),
                         " ranks; this step has ", std::to_string(world.size())})};
  }
  NodeTopology out;
  auto places = find_places(world);
  if (!places) return places.error();
  out.ranks = std::move(*places);
  if (auto status = measure_pairs(world, out, progress); !status) return status.error();
  out.groups = groups_by_latency(out.latency_ns);
  out.provenance = amldist_provenance(world.comm());
  return out;
}

std::string to_table(const NodeTopology& topology) {
  std::vector<std::vector<std::string>> table = {{"RANK", "HOST", "PROCESSOR", "CACHE_OF", "NUMA", "SOCKET"}};
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    const RankPlace& each = topology.ranks[rank];
    table.push_back({std::to_string(rank), each.host, number_or_unknown(each.processor) + (each.is_bound ? "" : "*"),
                     number_or_unknown(each.place.cache), number_or_unknown(each.place.memory),
                     number_or_unknown(each.place.socket)});
  }
  return format_table(table) + "\n" + matrix_table(topology.latency_ns, "LATENCY_NS", 0) + "\n" +
         matrix_table(topology.bandwidth_gbs, "BANDWIDTH_GBS", 2) + "\n" + comparison(topology) +
         concat({"the library: ", topology.provenance, "\n"});
}

std::string to_json(const NodeTopology& topology) {
  nlohmann::ordered_json out;
  out["ranks"] = nlohmann::ordered_json::array();
  const auto known = [](int number) { return number < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(number); };
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    const RankPlace& each = topology.ranks[rank];
    out["ranks"].push_back({{"rank", rank},
                            {"host", each.host},
                            {"processor", known(each.processor)},
                            {"bound", each.is_bound},
                            {"cache_of", known(each.place.cache)},
                            {"numa_node", known(each.place.memory)},
                            {"socket", known(each.place.socket)}});
  }
  out["latency_ns"] = topology.latency_ns;
  out["bandwidth_GBs"] = topology.bandwidth_gbs;
  out["groups"] = topology.groups;
  out["library"] = topology.provenance;
  return commands::json_text(out);
}

}  // namespace amldist::tools
