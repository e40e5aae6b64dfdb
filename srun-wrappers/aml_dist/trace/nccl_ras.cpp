#include "aml_dist/trace/nccl_ras.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/net/socket.hpp"
#include "base/text/hex.hpp"
#include "base/text/printable.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "step/messages/datagram.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "trace/record/process_stack.hpp"

namespace amldist::tools {
namespace {

using Json = nlohmann::json;
using text::concat;
using trace::Recording;

constexpr std::size_t longest_answer = std::size_t{64} << 20;
constexpr std::size_t most_groups = 4096;
constexpr std::uint16_t usual_port = 28028;

// ---- where it is ----

bool is_own(std::int32_t pid) {
  struct stat about = {};
  return ::stat(concat({"/proc/", std::to_string(pid)}).c_str(), &about) == 0 && about.st_uid == ::geteuid();
}

struct Place {
  IpAddress address = Ipv4{0x7f000001};
  std::uint16_t port = usual_port;
};

/// "localhost:28028", "10.0.0.1:28028", "[::1]:28028". Names of hosts are not looked up.
std::optional<Place> place_in(std::string_view given) {
  Place place;
  if (given.empty()) return place;
  const auto colon = given.rfind(':');
  const auto port = colon != std::string_view::npos ? text::to_number(given.substr(colon + 1), 65535) : std::nullopt;
  if (!port) return std::nullopt;
  place.port = static_cast<std::uint16_t>(*port);
  std::string_view host = given.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") return place;
  const auto address = IpAddress::parse(host);
  if (!address) return std::nullopt;
  place.address = *address;
  return place;
}

// ---- the conversation ----

/// Reads until `mark` has come, or to the end without one.
Result<std::string> read_until(const FileDescriptor& socket, char mark, Clock::time_point deadline) {
  std::string read;
  std::array<char, 16384> part{};
  while (mark == '\0' || read.find(mark) == std::string::npos) {
    if (!wait_until_ready(socket, Readiness::read, deadline)) return Error{Errc::timeout, "it does not answer"};
    const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return Error{Errc::unavailable, "it broke off"};
    if (got == 0) return mark == '\0' ? Result<std::string>(std::move(read)) : Error{Errc::unavailable, "it broke off"};
    read.append(part.data(), static_cast<std::size_t>(got));
    if (read.size() > longest_answer) return Error{Errc::limit, "its answer has more than 64 MiB"};
  }
  return read;
}

Result<std::string> say(const FileDescriptor& socket, std::string_view line, char mark, Clock::time_point deadline) {
  const auto sent = send_all(socket, line, deadline);
  return sent ? read_until(socket, mark, deadline) : Result<std::string>(sent.error());
}

Result<std::string> converse(const Place& place, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  const auto socket = connect_to(place.address, place.port, deadline);
  if (!socket) return Error{Errc::unavailable, "it cannot be reached"};
  const auto greeting = say(*socket, "CLIENT PROTOCOL 2\n", '\n', deadline);
  if (!greeting) return greeting.error();
  if (!greeting->starts_with("SERVER PROTOCOL ")) return Error{Errc::mismatch, "what answers on its port is not RAS"};
  const auto limit = concat({"TIMEOUT ", std::to_string(std::max<std::int64_t>(1, patience.count() / 2000)), "\n"});
  const auto limited = say(*socket, limit, '\n', deadline);
  if (!limited) return limited.error();
  const auto format = say(*socket, "SET FORMAT json\n", '\n', deadline);
  if (!format) return format.error();
  if (!format->starts_with("OK")) return Error{Errc::mismatch, "it is older than NCCL 2.28.7 and writes no JSON"};
  return say(*socket, "STATUS\n", '\0', deadline);
}

// ---- what it says ----

const Json& member_of(const Json& of, const char* name) {
  static const Json none;
  if (!of.is_object()) return none;
  const auto found = of.find(name);
  return found != of.end() ? *found : none;
}

std::optional<std::uint32_t> rank_in(const Json& entry, std::uint32_t size) {
  const Json& rank = member_of(entry, "rank");
  if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= size) return std::nullopt;
  return rank.get<std::uint32_t>();
}

struct Counts {
  std::vector<std::uint64_t> each;
  std::uint64_t all = 0;
};

Counts counts_in(const Json& entry) {
  constexpr std::uint64_t most = std::uint64_t{1} << 56;
  Counts counts;
  for (const auto& [name, count] : member_of(entry, "collective_counts").items()) {
    counts.each.push_back(count.is_number_unsigned() ? std::min(count.get<std::uint64_t>(), most) : 0);
    counts.all += counts.each.back();
  }
  return counts;
}

/// Where all have made as many calls, those that have not made what most have. Nobody in a tie.
std::vector<std::uint32_t> not_as_most(const std::map<std::uint32_t, Counts>& by_rank) {
  std::map<std::vector<std::uint64_t>, std::size_t> votes;
  for (const auto& [rank, counts] : by_rank) ++votes[counts.each];
  const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  std::vector<std::uint32_t> others;
  if (most == votes.end() || 2 * most->second <= by_rank.size()) return others;
  for (const auto& [rank, counts] : by_rank)
    if (counts.each != most->first) others.push_back(rank);
  return others;
}

std::optional<RasGroup> group_in(const Json& communicator) {
  const Json& hash = member_of(communicator, "hash");
  const Json& size = member_of(communicator, "size");
  if (!hash.is_string() || !size.is_number_unsigned() || size.get<std::uint64_t>() > most_tasks) return std::nullopt;
  const auto word = hash.get<std::string>();
  const auto id = word.starts_with("0x") ? from_hex(std::string_view(word).substr(2)) : std::nullopt;
  if (!id) return std::nullopt;
  RasGroup group{*id, size.get<std::uint32_t>(), {}, {}, {}};
  std::map<std::uint32_t, Counts> by_rank;
  for (const Json& entry : member_of(communicator, "ranks"))
    if (const auto rank = rank_in(entry, group.size)) by_rank[*rank] = counts_in(entry);
  for (const Json& entry : member_of(communicator, "missing_ranks")) {
    const auto rank = rank_in(entry, group.size);
    if (rank && !by_rank.contains(*rank)) group.silent.push_back(*rank);
  }
  std::ranges::sort(group.silent);
  group.silent.erase(std::unique(group.silent.begin(), group.silent.end()), group.silent.end());
  std::uint64_t most = 0;
  for (const auto& [rank, counts] : by_rank) most = std::max(most, counts.all);
  for (const auto& [rank, counts] : by_rank)
    if (counts.all < most) group.behind.push_back(rank);
  if (group.behind.empty()) group.differs = not_as_most(by_rank);
  return group;
}

std::string ranks_word(std::span<const std::uint32_t> ranks) {
  std::string list = trace::compress_ranks(ranks);
  return list.empty() ? "-" : list;
}

/// "0-2,5" as ascending numbers below `size`; nullopt for anything else.
std::optional<std::vector<std::uint32_t>> ranks_in(std::string_view list, std::uint32_t size) {
  std::vector<std::uint32_t> ranks;
  if (list == "-") return ranks;
  for (const std::string_view part : text::split(list, ',')) {
    const auto dash = part.find('-');
    const auto first = text::to_number(part.substr(0, dash), most_tasks);
    const auto last = dash == std::string_view::npos ? first : text::to_number(part.substr(dash + 1), most_tasks);
    if (!first || !last || *last >= size || *first > *last) return std::nullopt;
    if (!ranks.empty() && *first <= ranks.back()) return std::nullopt;
    for (auto rank = *first; rank <= *last; ++rank) ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

}  // namespace

std::optional<RasAnswer> ask_nccl_ras(std::span<const Recording> recordings, std::chrono::milliseconds patience) {
  const auto uses = std::ranges::find_if(recordings, [](const Recording& each) {
    return each.source == "nccl" && each.writer == trace::Writer::runs && each.pid > 0 && is_own(each.pid);
  });
  if (uses == recordings.end() || trace::environment_of(uses->pid, "NCCL_RAS_ENABLE") == "0") return std::nullopt;
  const auto place = place_in(trace::environment_of(uses->pid, "NCCL_RAS_ADDR"));
  if (!place) return RasAnswer{{}, "its NCCL_RAS_ADDR names a host, and only addresses are asked"};
  const auto answer = converse(*place, patience);
  return answer ? judge_ras(*answer) : RasAnswer{{}, answer.error().message};
}

RasAnswer judge_ras(std::string_view text) {
  const Json all = Json::parse(text, nullptr, false);
  const Json& communicators = member_of(all, "communicators");
  if (!communicators.is_array()) return {{}, "its answer cannot be read"};
  RasAnswer answer;
  for (const Json& each : communicators) {
    auto group = group_in(each);
    if (group && answer.groups.size() < most_groups) answer.groups.push_back(std::move(*group));
  }
  return answer;
}

std::string to_text(const RasAnswer& answer) {
  if (!answer.problem.empty()) return concat({"problem ", answer.problem, "\n"});
  std::string lines;
  for (const RasGroup& group : answer.groups) {
    lines += concat({"group ", step::to_hexadecimal(group.id), " ", std::to_string(group.size), " ",
                     ranks_word(group.silent), " ", ranks_word(group.behind), " ", ranks_word(group.differs), "\n"});
  }
  return lines;
}

RasAnswer parse_ras(std::string_view text) {
  RasAnswer answer;
  for (const std::string_view line : text::split(text, '\n')) {
    if (line.starts_with("problem ")) answer.problem = text::printable(line.substr(8), 120);
    const auto words = text::split(line, ' ');
    if (words.size() != 6 || words[0] != "group" || answer.groups.size() == most_groups) continue;
    const auto id = from_hex(words[1]);
    const auto size = text::to_number(words[2], most_tasks);
    if (!id || !size) continue;
    const auto size_32 = static_cast<std::uint32_t>(*size);
    auto silent = ranks_in(words[3], size_32);
    auto behind = ranks_in(words[4], size_32);
    auto differs = ranks_in(words[5], size_32);
    if (!silent || !behind || !differs) continue;
    answer.groups.push_back({*id, size_32, std::move(*silent), std::move(*behind), std::move(*differs)});
  }
  return answer;
}

}  // namespace amldist::tools
