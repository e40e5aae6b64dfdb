#include "launchers/hosts.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/text/natural_order.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launchers/node_names.hpp"
#include "shared/programs.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

constexpr std::size_t longest_hostfile = std::size_t{1024} * 1024;
constexpr std::uint32_t most_slots = 65536;
constexpr std::uint64_t most_ranks = 1U << 20U;

/// A list or a file that is being read; names are found in constant time, because a file may have 100,000 lines.
struct HostsRead {
  Repeats repeats = Repeats::one_host;
  std::vector<Host> hosts;
  std::unordered_map<std::string, std::size_t> places;

  void add(std::string_view name, std::optional<std::uint32_t> slots, std::string_view where = {}) {
    const auto [place, is_new] = places.emplace(name, hosts.size());
    const bool is_turn = starts_turn(repeats, hosts, name);
    if (is_new || is_turn) {
      hosts.push_back({std::string(name), slots, 1, std::string(where)});
      return;
    }
    Host& same = repeats == Repeats::one_host ? hosts[place->second] : hosts.back();
    same.slots = same.slots.value_or(same.lines) + slots.value_or(1);
    ++same.lines;
  }
};

Result<std::uint32_t> slots_of(std::string_view where, std::string_view digits) {
  const auto number = text::to_number(digits, most_slots);
  if (number && *number > 0) return static_cast<std::uint32_t>(*number);
  return Error{Errc::invalid_argument,
               concat({where, quote(digits), " is not a number of slots: use 1 to ", std::to_string(most_slots)})};
}

using Words = std::vector<std::string_view>;

/// One line of Hydra's machine file.
Result<void> read_machine_line(std::string_view where, const Words& words, HostsRead& reading) {
  const std::string_view name = words.front().substr(0, words.front().find(':'));
  if (!launch::is_host(name))
    return Error{Errc::invalid_argument, concat({where, quote(words.front()), " is not a host name"})};
  if (words.size() > 1)
    return Error{Errc::invalid_argument, concat({where, quote(words[1]), " is not known: write NAME or NAME:N"})};
  std::uint32_t slots = 1;
  if (name.size() < words.front().size()) {
    const auto number = slots_of(where, words.front().substr(name.size() + 1));
    if (!number) return number.error();
    slots = *number;
  }
  reading.add(name, slots, where);
  return {};
}

/// One line of a hostfile of Open MPI's form.
Result<void> read_line(std::string_view where, const Words& words, Again again, HostsRead& reading) {
  if (!launch::is_host(words.front())) {
    const auto colon = words.front().find(':');
    const bool is_hydras = again == Again::is_refused && colon != std::string_view::npos &&
                           launch::is_host(words.front().substr(0, colon)) &&
                           text::to_number(words.front().substr(colon + 1), most_slots);
    return Error{Errc::invalid_argument,
                 concat({where, quote(words.front()), " is not a host name",
                         is_hydras ? ": write NAME slots=N, or --mpi mpich if the file is one of MPICH" : ""})};
  }
  std::optional<std::uint32_t> slots;
  for (const std::string_view word : std::span(words).subspan(1)) {
    if (!word.starts_with("slots=")) {
      if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
      return Error{Errc::invalid_argument, concat({where, quote(word), " is not known: write NAME slots=N"})};
    }
    const auto number = slots_of(where, word.substr(6));
    if (!number) return number.error();
    slots = *number;
  }
  if (slots && again == Again::is_refused && reading.places.contains(std::string(words.front()))) {
    return Error{Errc::invalid_argument, concat({where, quote(words.front()),
                                                 " stands in an earlier line, too: write one line with slots=N, or ",
                                                 "a line without it for each slot"})};
  }
  reading.add(words.front(), slots, where);
  return {};
}

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += concat({out.empty() ? "" : ",", name});
  return out;
}

}  // namespace

bool starts_turn(Repeats repeats, const std::vector<Host>& before, std::string_view name) {
  const bool apart = before.empty() || before.back().name != name;
  return repeats == Repeats::turns || (repeats == Repeats::neighbours && apart);
}

Result<std::vector<Host>> parse_host_list(std::string_view list, std::optional<std::uint32_t> otherwise,
                                          Repeats repeats) {
  HostsRead reading{repeats, {}, {}};
  for (const std::string_view entry : text::split(list, ',')) {
    const auto colon = entry.find(':');
    const std::string_view name = entry.substr(0, colon);
    if (!launch::is_host(name)) {
      return Error{Errc::invalid_argument,
                   concat({quote(entry), " in the list of hosts is not a host: write NAME or NAME:SLOTS"})};
    }
    std::optional<std::uint32_t> slots = otherwise;
    if (colon != std::string_view::npos && entry.substr(colon + 1) == "*") {
      slots.reset();
    } else if (colon != std::string_view::npos) {
      const auto number = slots_of(concat({quote(entry), ": "}), entry.substr(colon + 1));
      if (!number) return number.error();
      slots = *number;
    }
    reading.add(name, slots);
  }
  if (auto status = name_nodes(reading.hosts, repeats); !status) return status.error();
  return std::move(reading.hosts);
}

namespace {

/// Hands each line that has words to `read`, without its comment.
template <typename Read>
Result<std::vector<Host>> read_lines(const std::string& file, Repeats repeats, Read read) {
  const auto content = commands::read_file(file, longest_hostfile);
  if (!content) return content.error();
  HostsRead reading{repeats, {}, {}};
  std::size_t number = 0;
  std::string_view text = *content;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  for (std::string_view line : text::split(text, '\n')) {
    line = line.substr(0, line.find('#'));
    std::string clean(line);
    std::ranges::replace_if(
        clean, [](char c) { return c == '\t' || c == '\r'; }, ' ');
    ++number;
    Words words;
    for (const std::string_view word : text::split(clean, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.empty()) continue;
    if (auto status = read(concat({file, ":", std::to_string(number), ": "}), words, reading); !status)
      return status.error();
  }
  if (reading.hosts.empty()) return Error{Errc::invalid_argument, concat({file, " names no host"})};
  if (auto status = name_nodes(reading.hosts, repeats); !status) return status.error();
  return std::move(reading.hosts);
}

}  // namespace

Result<std::vector<Host>> read_hostfile(const std::string& file, Again again) {
  return read_lines(file, Repeats::one_host, [again](std::string_view where, const Words& words, HostsRead& reading) {
    return read_line(where, words, again, reading);
  });
}

Result<std::vector<Host>> read_machine_file(const std::string& file) {
  return read_lines(file, Repeats::neighbours, read_machine_line);
}

void oversubscribe(std::vector<Host>& hosts, std::optional<std::uint32_t> processes) {
  std::uint64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(1);
  if (!processes || *processes <= slots) return;
  const std::uint64_t missing = *processes - slots;
  std::uint64_t left = missing % hosts.size();
  for (Host& host : hosts) {
    host.slots = static_cast<std::uint32_t>(host.slots.value_or(1) + missing / hosts.size() + (left > 0 ? 1 : 0));
    left -= left > 0 ? 1 : 0;
  }
}

Result<std::vector<std::string>> deal_ranks(const std::vector<Host>& hosts, std::optional<std::uint32_t> processes,
                                            Distribution distribution) {
  std::uint64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(1);
  const std::uint64_t wanted = processes.value_or(static_cast<std::uint32_t>(std::min(slots, most_ranks)));
  if (wanted > slots || wanted > most_ranks) {
    return Error{Errc::mismatch,
                 concat({std::to_string(wanted), " processes do not fit into the ", text::count(slots, "slot"),
                         " of the hosts: name more slots (HOST:N), or ask for "
                         "fewer processes"})};
  }
  std::vector<std::string> out;
  std::map<std::string_view, std::uint32_t> dealt;
  while (out.size() < wanted) {
    for (const Host& host : hosts) {
      const std::uint32_t free = host.slots.value_or(1) - dealt[host.name];
      const std::uint32_t take = distribution == Distribution::by_node ? std::min(free, 1U) : free;
      for (std::uint32_t i = 0; i < take && out.size() < wanted; ++i) out.push_back(host.name);
      dealt[host.name] += take;
    }
  }
  return out;
}

Result<void> place(const std::vector<Host>& hosts, std::optional<std::uint32_t> processes, Distribution distribution,
                   commands::SlurmOptions& srun) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const Host& host : hosts) names.push_back(host.name);
  if (names.size() == 1 && names.front() == any_node) {
    const auto ranks = deal_ranks(hosts, processes, distribution);
    if (hosts.front().slots && !ranks) return ranks.error();
    srun.set("nodes", "1");
    srun.set("ntasks", std::to_string(processes.value_or(hosts.front().slots.value_or(1))));
    return {};
  }
  const bool unknown = std::ranges::any_of(hosts, [](const Host& host) { return !host.slots; });
  if (unknown) {
    srun.set("nodes", std::to_string(names.size()));
    if (processes) srun.set("ntasks", std::to_string(*processes));
    srun.set("nodelist", join_names(names));
    return {};
  }
  const auto ranks = deal_ranks(hosts, processes, distribution);
  if (!ranks) return ranks.error();
  std::map<std::string_view, std::size_t> counts;
  for (const std::string& rank : *ranks) ++counts[rank];
  std::erase_if(names, [&](const std::string& name) { return !counts.contains(name); });
  const std::size_t each = counts[names.front()];
  const bool uniform = std::ranges::all_of(counts, [&](const auto& count) { return count.second == each; });
  const bool in_order = std::is_sorted(names.begin(), names.end(), natural_less);
  if (uniform && in_order) {
    srun.set("nodes", std::to_string(names.size()));
    srun.set("ntasks-per-node", std::to_string(each));
    srun.set("nodelist", join_names(names));
    if (distribution == Distribution::by_node && each > 1) srun.set("distribution", "cyclic");
    return {};
  }
  srun.set("ntasks", std::to_string(ranks->size()));
  srun.set("distribution", "arbitrary");
  srun.set("nodelist", join_names(*ranks));
  return {};
}

}  // namespace amldist::launchers
