#include "launch/option/spec.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <vector>

#include "base/net/ipv4.hpp"
#include "base/text/help_line.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr std::array kind_names = {
    KindName{"pytorch", Kind::pytorch}, KindName{"tensorflow", Kind::tensorflow},
    KindName{"mpi", Kind::mpi},         KindName{"jax", Kind::jax},
    KindName{"ray", Kind::ray},         KindName{"none", Kind::none},
};

/// In the order of RdmaPairs.
constexpr std::array<std::string_view, 3> policy_names = {"require", "prefer", "off"};
constexpr std::array<std::string_view, 4> pairs_names = {"off", "ring", "log", "all"};

Error invalid(std::string message) { return {Errc::invalid_argument, std::move(message)}; }

/// "; did you mean 'x'?", or the list of candidates.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  if (const auto near = text::nearest(word, candidates)) return concat({": did you mean '", *near, "'?"});
  return concat({": use one of ", text::join(candidates)});
}

Error bad_value(std::string_view key, std::string_view value, std::span<const std::string_view> allowed) {
  return invalid(concat({key, "=", quote(value), " is not valid", suggestion(value, allowed)}));
}

Result<std::uint32_t> parse_number(std::string_view key, std::string_view value, std::uint32_t low,
                                   std::uint32_t high) {
  const auto number = text::to_number(value, high);
  if (!number || *number < low) {
    return invalid(concat({key, "=", quote(value), " is not valid: use a whole number from ", std::to_string(low),
                           " to ", std::to_string(high)}));
  }
  return static_cast<std::uint32_t>(*number);
}

// ---- one setter per key ----

Result<void> set_launch(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 2> allowed = {"per-process", "per-node"};
  if (value == allowed[0]) spec.launch = Launch::per_process;
  else if (value == allowed[1]) spec.launch = Launch::per_node;
  else return bad_value("launch", value, allowed);
  return {};
}

Result<void> set_slurm_env(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 2> allowed = {"hide", "keep"};
  if (value == allowed[0]) spec.slurm_env = SlurmEnv::hide;
  else if (value == allowed[1]) spec.slurm_env = SlurmEnv::keep;
  else return bad_value("slurm_env", value, allowed);
  return {};
}

Result<void> set_nproc_per_node(Spec& spec, std::string_view value) {
  using Source = ProcessesPerNode::Source;
  constexpr std::array<std::string_view, 3> words = {"auto", "gpu", "cpu"};
  constexpr std::array sources = {Source::automatic, Source::gpu, Source::cpu};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (value == words[i]) {
      spec.nproc_per_node = {sources[i], 0};
      return {};
    }
  }
  const auto number = text::to_number(value, 65536);
  if (!number || *number == 0) {
    return invalid(concat(
        {"nproc_per_node=", quote(value), " is not valid: use a whole number from 1 to 65536, or auto, gpu or cpu"}));
  }
  spec.nproc_per_node = {Source::number, static_cast<std::uint32_t>(*number)};
  return {};
}

Result<void> set_backend(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 7> allowed = {"nccl", "gloo", "mpi", "ucc", "xccl", "hccl", "amldist"};
  std::string lower = text::to_lower(value);  // Azure ML writes "Nccl" and "Gloo"
  if (std::ranges::find(allowed, lower) == allowed.end()) return bad_value("backend", value, allowed);
  spec.backend = std::move(lower);
  return {};
}

Result<void> set_master_addr(Spec& spec, std::string_view value) {
  if (value == "ip") spec.master_addr = {MasterAddress::Form::ip, {}};
  else if (value == "name") spec.master_addr = {MasterAddress::Form::name, {}};
  else if (is_host(value)) spec.master_addr = {MasterAddress::Form::host, std::string(value)};
  else {
    return invalid(concat({"master_addr=", quote(value),
                           " is not valid: use name, ip, a host name or an IPv4 address (no IPv6, no port)"}));
  }
  return {};
}

Result<void> set_master_port(Spec& spec, std::string_view value) {
  const auto port = parse_number("master_port", value, 1, 65535);
  if (!port) return port.error();
  spec.master_port = static_cast<std::uint16_t>(*port);
  return {};
}

template <std::optional<RdmaPolicy> Spec::*member>
Result<void> set_policy(Spec& spec, std::string_view key, std::string_view value) {
  spec.*member = policy_from_name(value);
  return spec.*member ? Result<void>() : bad_value(key, value, policy_names);
}

Result<void> set_rdma_pairs(Spec& spec, std::string_view value) {
  spec.rdma_pairs = rdma_pairs_from_name(value);
  return spec.rdma_pairs ? Result<void>() : bad_value("rdma_pairs", value, pairs_names);
}

Result<void> set_trace(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 2> allowed = {"on", "off"};
  if (value != allowed[0] && value != allowed[1]) return bad_value("trace", value, allowed);
  spec.trace = value == allowed[0];
  return {};
}

Result<void> set_hang_action(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 2> allowed = {"report", "end"};
  if (value != allowed[0] && value != allowed[1]) return bad_value("hang_action", value, allowed);
  spec.hang_action = value == allowed[0] ? HangAction::report : HangAction::end;
  return {};
}

struct SignalName {
  std::string_view name;
  int number;
};
/// Signals that a program can take and that are not the kernel's answer to a fault of its own.
constexpr auto stop_signals = std::to_array<SignalName>({{"USR1", SIGUSR1},
                                                         {"USR2", SIGUSR2},
                                                         {"TERM", SIGTERM},
                                                         {"INT", SIGINT},
                                                         {"HUP", SIGHUP},
                                                         {"QUIT", SIGQUIT},
                                                         {"ALRM", SIGALRM},
                                                         {"URG", SIGURG},
                                                         {"XCPU", SIGXCPU},
                                                         {"CONT", SIGCONT}});

/// SECONDS, SECONDS@SIGNAL, with or without SIG.
Result<void> set_stop(Spec& spec, std::string_view value) {
  const auto at = value.find('@');
  const auto seconds = parse_number("stop", value.substr(0, at), 1, longest_hang);
  if (!seconds) return seconds.error();
  spec.stop = StopWish{*seconds};
  if (at == std::string_view::npos) return {};
  std::string_view name = value.substr(at + 1);
  if (name.starts_with("SIG")) name.remove_prefix(3);
  const auto* const found = std::ranges::find(stop_signals, name, &SignalName::name);
  if (found != stop_signals.end()) {
    spec.stop->signal = found->number;
    return {};
  }
  std::array<std::string_view, stop_signals.size()> names;
  std::ranges::transform(stop_signals, names.begin(), &SignalName::name);
  return bad_value("stop=SECONDS@SIGNAL with SIGNAL", value.substr(at + 1), names);
}

template <std::optional<std::uint32_t> Spec::*member, std::uint32_t most>
Result<void> set_number(Spec& spec, std::string_view key, std::string_view value) {
  const auto number = parse_number(key, value, 1, most);
  if (!number) return number.error();
  spec.*member = *number;
  return {};
}

Result<void> set_order(Spec& spec, std::string_view value) {
  constexpr std::array<std::string_view, 1> allowed = {"topology"};
  if (value != allowed[0]) return bad_value("order", value, allowed);
  spec.along_topology = true;
  return {};
}

constexpr std::uint32_t max_count = std::numeric_limits<std::int32_t>::max();

template <std::optional<std::uint32_t> CountAssertions::*member, std::uint32_t low, std::uint32_t high>
Result<void> set_count(Spec& spec, std::string_view key, std::string_view value) {
  const auto number = parse_number(key, value, low, high);
  if (!number) return number.error();
  spec.counts.*member = *number;
  return {};
}

Result<void> set_processes_per_node(Spec& spec, std::string_view key, std::string_view value) {
  spec.counts.processes_per_node_key = key;
  return set_count<&CountAssertions::processes_per_node, 1, max_count>(spec, key, value);
}

// ---- table of keys ----

constexpr unsigned bit(Kind kind) { return 1U << static_cast<unsigned>(kind); }
constexpr unsigned any_kind =
    bit(Kind::pytorch) | bit(Kind::tensorflow) | bit(Kind::mpi) | bit(Kind::jax) | bit(Kind::ray);
constexpr unsigned launchers = bit(Kind::pytorch) | bit(Kind::mpi);

using Setter = Result<void> (*)(Spec&, std::string_view key, std::string_view value);

template <Result<void> (*set)(Spec&, std::string_view)>
Result<void> plain(Spec& spec, std::string_view /*key*/, std::string_view value) {
  return set(spec, value);
}

struct Key {
  std::string_view name;
  std::string_view values;  ///< as in the help text
  std::string_view meaning;
  unsigned kinds;  ///< kinds that accept the key
  Setter set;
  std::string_view same_as = {};  ///< alias of this key; giving both is an error
  std::string_view bare = {};     ///< the value of the key written alone; empty: it needs a value
};

using C = CountAssertions;

constexpr std::array keys = {
    Key{"launch", "per-process|per-node", "who starts the processes (per-node: pytorch, mpi)", any_kind,
        plain<set_launch>},
    Key{"slurm_env", "hide|keep", "per node: hide Slurm's task variables from the launcher", launchers | bit(Kind::ray),
        plain<set_slurm_env>},
    Key{"nproc_per_node", "N|auto|gpu|cpu", "per node: processes that the launcher starts", launchers,
        plain<set_nproc_per_node>},
    Key{"backend", "nccl|gloo|mpi|...", "communication backend, passed to the program", bit(Kind::pytorch),
        plain<set_backend>},
    Key{"master_addr", "name|ip|HOST", "how MASTER_ADDR is written, or the host to use", any_kind,
        plain<set_master_addr>},
    Key{"master_port", "N", "MASTER_PORT, 1 to 65535", any_kind, plain<set_master_port>},
    Key{"rdma", "require|prefer|off", "verify RDMA on every node before the tasks start", any_kind,
        set_policy<&Spec::rdma>},
    Key{"rdma_pairs", "off|ring|log|all", "which nodes write to each other for that", any_kind, plain<set_rdma_pairs>},
    Key{"health", "require|prefer|off", "verify GPUs and hosts before the tasks start", any_kind,
        set_policy<&Spec::health>},
    Key{"trace",
        "on|off",
        "record calls for 'aml-dist trace'; alone it means on",
        any_kind,
        plain<set_trace>,
        {},
        "on"},
    Key{"hang", "SECONDS", "report a step that makes no progress, and the rank at fault", any_kind,
        set_number<&Spec::hang, longest_hang>},
    Key{"hang_action", "report|end", "what to do then (default: end the step, status 75)", any_kind,
        plain<set_hang_action>},
    Key{"hang_busy", "FACTOR", "so many times later if the rank at fault computes (default: 5)", any_kind,
        set_number<&Spec::hang_busy, largest_hang_busy>},
    Key{"stop", "SECONDS[@SIGNAL]", "ask the ranks to stop so long before the time limit", any_kind, plain<set_stop>},
    Key{"order", "topology", "assert: hosts in rank order are along the switches (aml-dist order)", any_kind,
        plain<set_order>},
    Key{"verbose", "", "print what was computed and from which facts", any_kind, nullptr},
    Key{"node_count", "N", "assert: nodes of the step", any_kind, set_count<&C::nodes, 1, max_count>},
    Key{"process_count", "N", "assert: tasks of the step", any_kind, set_count<&C::processes, 1, max_count>},
    Key{"process_count_per_node", "N", "assert: tasks on each node", any_kind, set_processes_per_node},
    Key{"process_count_per_instance", "N", "the same, as named in job files", any_kind, set_processes_per_node,
        "process_count_per_node"},
    Key{"worker_count", "N", "workers (unset: the remaining tasks)", bit(Kind::tensorflow),
        set_count<&C::workers, 0, max_count>},
    Key{"parameter_server_count", "N", "parameter servers", bit(Kind::tensorflow),
        set_count<&C::parameter_servers, 0, max_count>},
    Key{"chief_count", "0|1", "a chief", bit(Kind::tensorflow), set_count<&C::chiefs, 0, 1>},
    Key{"evaluator_count", "0|1", "an evaluator", bit(Kind::tensorflow), set_count<&C::evaluators, 0, 1>},
};

constexpr auto key_names = [] {
  std::array<std::string_view, keys.size()> names{};
  for (std::size_t i = 0; i < keys.size(); ++i) names[i] = keys[i].name;
  return names;
}();

constexpr auto kind_words = [] {
  std::array<std::string_view, kind_names.size() + 1> words{};
  for (std::size_t i = 0; i < kind_names.size(); ++i) words[i] = kind_names[i].name;
  words.back() = "help";
  return words;
}();

/// The spelling that the user wrote, for each canonical key.
using Seen = std::array<std::string_view, keys.size()>;

/// Applies "KEY=VALUE" or a bare flag.
Result<void> apply_key(Spec& spec, std::string_view piece, Seen& seen) {
  const auto equals = piece.find('=');
  const std::string_view name = piece.substr(0, equals);
  if (name.empty()) {
    return invalid(concat({"a key is missing ", piece.empty() ? "behind a comma" : concat({"in ", quote(piece)}),
                           ": write KIND,KEY=VALUE without blanks"}));
  }
  if (text::trim(name) != name) {
    return invalid(concat({"a blank stands in ", quote(piece), ": write KIND,KEY=VALUE without blanks"}));
  }
  const auto* const key = std::ranges::find(keys, name, &Key::name);
  if (key == keys.end()) return invalid(concat({"unknown key ", quote(name), suggestion(name, key_names)}));
  if ((key->kinds & bit(spec.kind)) == 0) {
    return invalid(concat({"key '", key->name, "' does not apply to kind '", to_string(spec.kind), "': drop it"}));
  }
  const std::string_view canonical = key->same_as.empty() ? key->name : key->same_as;
  const auto* const first = std::ranges::find(keys, canonical, &Key::name);
  std::string_view& earlier = seen[static_cast<std::size_t>(first - keys.begin())];
  if (earlier == key->name) return invalid(concat({"key '", key->name, "' is given twice: keep one"}));
  if (!earlier.empty()) {
    return invalid(concat({"'", earlier, "' and '", key->name, "' are two spellings of one key: keep one"}));
  }
  earlier = key->name;

  const bool flag = key->set == nullptr;
  if (flag) {
    if (equals != std::string_view::npos) {
      return invalid(concat({"key '", key->name, "' takes no value: write it alone"}));
    }
    spec.verbose = true;
    return {};
  }
  if (equals == std::string_view::npos && !key->bare.empty()) return key->set(spec, key->name, key->bare);
  if (equals == std::string_view::npos || equals + 1 == piece.size()) {
    return invalid(concat({"key '", key->name, "' needs a value: write ", key->name, "=", key->values}));
  }
  return key->set(spec, key->name, piece.substr(equals + 1));
}

/// Checks that need more than one key.
Result<void> check_together(const Spec& spec) {
  const bool per_node = spec.launch == Launch::per_node;
  if (spec.kind == Kind::ray && !per_node) {
    return invalid(
        "launch=per-process is not supported for kind 'ray': drop it, one task on each node starts Ray there");
  }
  if (per_node && spec.kind != Kind::ray && (bit(spec.kind) & launchers) == 0) {
    return invalid(concat({"launch=per-node is not supported for kind '", to_string(spec.kind),
                           "': use launch=per-process, or kind pytorch or mpi"}));
  }
  if (!per_node && spec.nproc_per_node != ProcessesPerNode{}) {
    return invalid("nproc_per_node needs launch=per-node: add it, or set the tasks of a node with --ntasks-per-node");
  }
  if (spec.hang && spec.trace == false) return invalid("hang= needs trace: drop trace=off or hang");
  if (spec.hang_action && !spec.hang) return invalid("hang_action= needs hang=SECONDS: add it");
  if (spec.hang_busy && !spec.hang) return invalid("hang_busy= needs hang=SECONDS: add it");
  return {};
}

Error empty_option() {
  return invalid(concat({"the option is empty: write --aml-dist=KIND with one of ", text::join(kind_words)}));
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
  const auto* const found = std::ranges::find(kind_names, kind, &KindName::kind);
  return found == kind_names.end() ? std::string_view("none") : found->name;
}

std::string_view to_string(Launch launch) noexcept { return launch == Launch::per_node ? "per-node" : "per-process"; }

std::string_view to_string(RdmaPolicy policy) noexcept { return policy_names.at(static_cast<std::size_t>(policy)); }

std::optional<RdmaPolicy> policy_from_name(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(policy_names, name);
  if (found == policy_names.end()) return std::nullopt;
  return static_cast<RdmaPolicy>(found - policy_names.begin());
}

std::string_view to_string(RdmaPairs pairs) noexcept { return pairs_names.at(static_cast<std::size_t>(pairs)); }

std::optional<RdmaPairs> rdma_pairs_from_name(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(pairs_names, name);
  if (found == pairs_names.end()) return std::nullopt;
  return static_cast<RdmaPairs>(found - pairs_names.begin());
}

std::optional<Kind> kind_from_name(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kind_names, name, &KindName::name);
  if (found == kind_names.end()) return std::nullopt;
  return found->kind;
}

bool is_host(std::string_view host) noexcept {
  if (host.empty() || host.size() > 253 || host.front() == '-' || host.front() == '.') return false;
  // Digits and dots only must be an IPv4 address: no resolver finds 10.1.2.300 or 10.1.2.
  if (host.find('.') != std::string_view::npos && host.find_first_not_of("0123456789.") == std::string_view::npos) {
    return Ipv4::parse(host).has_value();
  }
  return std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

bool is_help(std::string_view text) noexcept { return text == "help" || text.starts_with("help,"); }

Result<Spec> parse_spec(std::string_view text) {
  if (text.size() > longest_option) {
    return Error{Errc::limit, concat({"the option is ", std::to_string(text.size()), " bytes long: the limit is ",
                                      std::to_string(longest_option), " bytes"})};
  }
  if (text.empty()) return empty_option();
  const auto pieces = text::split(text, ',');
  const auto kind = kind_from_name(pieces.front());
  if (pieces.front().empty()) {
    return invalid(concat({"the kind is missing in ", quote(text), ": start with one of ", text::join(kind_words)}));
  }
  if (!kind) {
    return invalid(concat({"unknown kind ", quote(pieces.front()), suggestion(pieces.front(), kind_words)}));
  }
  Spec spec;
  spec.kind = *kind;
  if (spec.kind == Kind::none) {
    if (pieces.size() > 1) return invalid("kind 'none' takes no keys: write --aml-dist=none");
    return spec;
  }
  if (spec.kind == Kind::ray) spec.launch = Launch::per_node;
  Seen seen{};
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    if (auto status = apply_key(spec, pieces[i], seen); !status) return status.error();
  }
  if (auto status = check_together(spec); !status) return status.error();
  return spec;
}

std::string option_help() {
  std::string out =
      "--aml-dist=KIND[,KEY=VALUE]...   the distributed environment of Azure ML for\n"
      "                                 every task of a step\n\n"
      "Examples:\n"
      "  srun -N2 --ntasks-per-node=4 --aml-dist=pytorch python train.py\n"
      "  srun -N2 --ntasks-per-node=1 \\\n"
      "      --aml-dist=pytorch,launch=per-node,nproc_per_node=4 torchrun train.py\n"
      "  srun --aml-dist=none hostname        (switches an inherited option off)\n\n"
      "Kinds:\n"
      "  pytorch      MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK, ...\n"
      "  tensorflow   the same and TF_CONFIG\n"
      "  mpi          the same and the OMPI_COMM_WORLD_* and AZ_* names\n"
      "  jax          the same and JAX_COORDINATOR_ADDRESS\n"
      "  ray          for aml-dist ray: RAY_ADDRESS, NODE_RANK, WORLD_SIZE (nodes), ...\n"
      "  none         no environment for this step\n"
      "  help         this text\n\n"
      "Keys:\n";
  constexpr std::size_t meaning_column = 34;
  for (const Key& key : keys) {
    const std::string head = concat({key.name, key.values.empty() ? "" : "=", key.values});
    out += text::help_line(head, key.meaning, meaning_column);
  }
  out += "\nA wrong count is refused before any task starts.\n";
  return out;
}

}  // namespace amldist::launch
