#include "launchers/node_names.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/net/own_network.hpp"
#include "base/os/environment.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

/// Slurm's nodes: the name of each by its name and by its address, which slurm.conf gives as an address or a name.
struct Nodes {
  std::unordered_set<std::string> names;
  std::unordered_map<std::string, std::string> by_address;
  std::string example;  ///< the first one

  void add(std::string name, std::string address) {
    if (example.empty()) example = name;
    by_address.emplace(std::move(address), name);
    names.insert(std::move(name));
  }
};

bool is_loopback(std::string_view name) { return name == "localhost" || name.starts_with("127."); }

/// Digits and dots alone are an address (is_host()).
bool is_address(std::string_view name) { return name.find_first_not_of("0123456789.") == std::string_view::npos; }

std::string_view short_of(std::string_view name) { return name.substr(0, name.find('.')); }

/// Slurm's nodes; those of the allocation, if there is one.
Nodes ask_for_nodes(const std::vector<std::string>& allocated) {
  Nodes out;
  std::vector<std::string> words = {"timeout", "10", "sinfo", "-h", "-N", "-o", "%N %o"};
  if (!allocated.empty()) words.push_back(concat({"-n", own_variable("SLURM_JOB_NODELIST").value_or("")}));
  const auto done = commands::run_program(words);
  if (done && done->status == 0) {
    for (const std::string_view line : text::split(done->out, '\n')) {
      const auto blank = line.find(' ');
      if (blank != std::string_view::npos)
        out.add(std::string(line.substr(0, blank)), std::string(text::trim(line.substr(blank))));
    }
  }
  if (out.names.empty()) {
    for (const std::string& name : allocated) out.add(name, name);
  }
  return out;
}

/// Slurm is asked at most once, however many hosts the command line has.
class Namer {
 public:
  Namer() : allocated_(allocated_nodes()), own_name_(own_host_name()) {}

  Result<std::string> name_of(const Host& host) {
    const std::string_view name = host.name;
    const bool is_here = is_loopback(name) || short_of(name) == short_of(own_name_);
    if (is_here) return own_node(host);
    if (name.find('.') == std::string_view::npos) return host.name;
    const Nodes& nodes = known_nodes();
    if (nodes.names.empty() || nodes.names.contains(host.name)) return host.name;
    if (const auto found = nodes.by_address.find(host.name); found != nodes.by_address.end()) return found->second;
    std::string plain(short_of(name));
    if (!is_address(name) && nodes.names.contains(plain)) return plain;
    return Error{Errc::not_found,
                 concat({host.where, quote(name), is_address(name) ? " is the address" : " is the name",
                         " of no node of ", allocated_.empty() ? "the cluster" : "the allocation",
                         ": write the node's name, such as ", nodes.example})};
  }

 private:
  /// This machine: the node on which a batch script or salloc's shell runs.
  Result<std::string> own_node(const Host& host) {
    const auto is_own = [&](const std::string& name) { return short_of(name) == short_of(own_name_); };
    const std::string task_node = own_variable("SLURMD_NODENAME").value_or("");
    if (std::ranges::find(allocated_, task_node) != allocated_.end()) return task_node;
    const auto same = std::ranges::find_if(allocated_, is_own);
    if (same != allocated_.end()) return *same;
    if (allocated_.size() == 1) return allocated_.front();
    if (allocated_.empty()) return is_loopback(host.name) ? std::string(any_node) : host.name;
    return Error{Errc::not_found, concat({host.where, quote(host.name), " is this machine, which is not a node of the ",
                                          "allocation: write the nodes' names, such as ", allocated_.front()})};
  }

  const Nodes& known_nodes() {
    if (!nodes_) nodes_ = ask_for_nodes(allocated_);
    return *nodes_;
  }

  std::vector<std::string> allocated_;
  std::string own_name_;
  std::optional<Nodes> nodes_;
};

/// The one of this process, which is one command line.
Namer& namer() {
  static Namer only;
  return only;
}

}  // namespace

std::vector<std::string> allocated_nodes() {
  const auto list = Hostlist::parse(own_variable("SLURM_JOB_NODELIST").value_or(""));
  return list ? list->expand() : std::vector<std::string>();
}

Result<void> name_nodes(std::vector<Host>& hosts, Repeats repeats) {
  std::vector<Host> out;
  std::unordered_map<std::string, std::size_t> places;
  for (Host& host : hosts) {
    auto name = namer().name_of(host);
    if (!name) return name.error();
    if (*name == any_node && hosts.size() > 1) {
      return Error{Errc::not_found,
                   concat({host.where, quote(host.name), " beside other hosts is this machine, which is ",
                           "not a node of the job: write the names of Slurm's nodes"})};
    }
    host.name = std::move(*name);
    const auto [place, is_new] = places.emplace(host.name, out.size());
    if (is_new || starts_turn(repeats, out, host.name)) {
      out.push_back(std::move(host));
      continue;
    }
    Host& same = repeats == Repeats::one_host ? out[place->second] : out.back();
    same.slots = same.slots.value_or(same.lines) + host.slots.value_or(host.lines);
    same.lines += host.lines;
  }
  hosts = std::move(out);
  return {};
}

Result<std::string> node_name(std::string_view host) { return namer().name_of({std::string(host), std::nullopt}); }

}  // namespace amldist::launchers
