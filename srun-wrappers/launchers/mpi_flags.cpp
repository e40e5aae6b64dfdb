#include "launchers/mpi_flags.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "shared/programs.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;
using Done = Result<void>;
using F = FlagHandling;

/// Open MPI 5 keeps the first value of a flag that is given twice, 4.1 the last.
Error given_twice(const GivenFlag& given) {
  return invalid_value(given,
                       "another value was given before, and releases of Open MPI differ in which holds: keep one");
}

template <std::optional<std::uint32_t> MpiState::*member>
Done set_number(MpiState& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 1U << 20U);
  if (!number) return number.error();
  if (state.*member && state.*member != *number) return given_twice(given);
  state.*member = *number;
  return {};
}

Done set_one_per_node(MpiState& state, const GivenFlag& /*given*/) {
  state.per_node = 1;
  return {};
}

Done set_number_option(MpiState& state, const GivenFlag& given, std::string_view option) {
  const auto number = number_of(given, 1, 65536);
  if (!number) return number.error();
  state.line.srun.set(option, std::to_string(*number));
  return {};
}

Done set_cpus(MpiState& state, const GivenFlag& given) { return set_number_option(state, given, "cpus-per-task"); }
Done set_per_socket(MpiState& state, const GivenFlag& given) {
  return set_number_option(state, given, "ntasks-per-socket");
}

/// A host that two flags name is one host with the slots of both.
void join_hosts(std::vector<Host>& all, const std::vector<Host>& more) {
  for (const Host& host : more) {
    const auto same = std::ranges::find(all, host.name, &Host::name);
    if (same == all.end()) all.push_back(host);
    else if (same->slots && host.slots) *same->slots += *host.slots;
    else same->slots.reset();
  }
}

Done add_hosts(MpiState& state, const GivenFlag& given) {
  auto hosts = parse_host_list(given.value(), 1);
  if (!hosts) return hosts.error();
  join_hosts(state.hosts, *hosts);
  return {};
}

Done add_hostfile(MpiState& state, const GivenFlag& given) {
  auto hosts = read_hostfile(given.value(), Again::is_refused);
  if (!hosts) return hosts.error();
  join_hosts(state.pool, *hosts);
  return {};
}

void choose_distribution(MpiState& state, Distribution distribution) {
  state.distribution = distribution;
  state.distribution_chosen = true;
}

Done choose_oversubscription(MpiState& state, const GivenFlag& given, bool chosen) {
  if (state.oversubscribes.value_or(chosen) != chosen)
    return invalid_value(given, "the opposite was given before: keep one");
  state.oversubscribes = chosen;
  if (chosen) state.line.srun.set("overcommit");
  return {};
}

Done set_oversubscribe(MpiState& state, const GivenFlag& given) { return choose_oversubscription(state, given, true); }
Done set_nooversubscribe(MpiState& state, const GivenFlag& given) {
  return choose_oversubscription(state, given, false);
}

/// ":PE=2:OVERSUBSCRIBE" behind a mapping.
Done set_modifier(MpiState& state, const GivenFlag& given, std::string_view modifier) {
  const std::string word = text::to_lower(modifier);
  if (word.starts_with("pe=")) {
    const auto number = text::to_number(std::string_view(word).substr(3), 65536);
    if (!number || *number == 0) return invalid_value(given, "PE=N needs a whole number");
    state.line.srun.set("cpus-per-task", std::to_string(*number));
  } else if (word == "oversubscribe" || word == "nooversubscribe") {
    return choose_oversubscription(state, given, word == "oversubscribe");
  } else if (word == "span") {
    choose_distribution(state, Distribution::by_node);
  } else if (word != "corecpus" && word != "inherit" && word != "noinherit") {
    return invalid_value(given, concat({"Slurm has nothing like ", quote(modifier)}));
  }
  return {};
}

/// "ppr:4:node".
Done set_per_resource(MpiState& state, const GivenFlag& given, std::string_view count, std::string_view resource) {
  const auto number = text::to_number(count, 65536);
  if (!number || *number == 0) return invalid_value(given, "write ppr:N:node");
  const std::string digits = std::to_string(*number);
  if (resource == "node") state.per_node = static_cast<std::uint32_t>(*number);
  else if (resource == "socket" || resource == "package") state.line.srun.set("ntasks-per-socket", digits);
  else if (resource == "core") state.line.srun.set("ntasks-per-core", digits);
  else return invalid_value(given, "Slurm counts tasks by node, socket or core");
  return {};
}

Done set_mapping(MpiState& state, const GivenFlag& given) {
  std::vector<std::string_view> parts = text::split(given.value(), ':');
  const std::string unit = text::to_lower(parts.front());
  std::size_t used = 1;
  if (unit == "ppr") {
    if (parts.size() < 3) return invalid_value(given, "write ppr:N:node");
    if (auto status = set_per_resource(state, given, parts[1], text::to_lower(parts[2])); !status)
      return status.error();
    used = 3;
  } else if (unit == "node") {
    choose_distribution(state, Distribution::by_node);
  } else if (unit == "slot" || unit == "core" || unit == "hwthread") {
    choose_distribution(state, Distribution::by_slot);
  } else if (unit == "socket" || unit == "package" || unit == "numa") {
    state.line.srun.set("distribution", "block:cyclic");
  } else if (!unit.empty()) {
    return invalid_value(given,
                         "use slot, core, node, socket, numa or ppr:N:node; for a layout of your own, "
                         "--slurm=--distribution=arbitrary with SLURM_HOSTFILE");
  }
  for (const std::string_view modifier : std::span(parts).subspan(used)) {
    if (auto status = set_modifier(state, given, modifier); !status) return status.error();
  }
  return {};
}

/// Slurm numbers ranks in the order in which it places them.
Done set_ranking(MpiState& state, const GivenFlag& given) {
  const std::string unit = text::to_lower(std::string_view(given.value()).substr(0, given.value().find(':')));
  if (unit == "node") choose_distribution(state, Distribution::by_node);
  else if (unit == "slot" || unit == "fill" || unit == "core" || unit == "hwthread")
    choose_distribution(state, Distribution::by_slot);
  else return invalid_value(given, "ranks follow the placement: use slot or node");
  return {};
}

Done set_binding(MpiState& state, const GivenFlag& given) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> units = {{{"none", "none"},
                                                                                   {"core", "cores"},
                                                                                   {"hwthread", "threads"},
                                                                                   {"socket", "sockets"},
                                                                                   {"package", "sockets"},
                                                                                   {"numa", "ldoms"},
                                                                                   {"l3cache", "ldoms"},
                                                                                   {"board", "none"}}};
  const std::string unit = text::to_lower(std::string_view(given.value()).substr(0, given.value().find(':')));
  const auto* const found = std::ranges::find(units, unit, [](const auto& each) { return each.first; });
  if (found == units.end()) return invalid_value(given, "use none, core, hwthread, socket or numa");
  const auto colon = given.value().find(':');
  if (colon != std::string::npos && text::to_number(given.value().substr(colon + 1), 65536))
    return invalid_value(given,
                         "with Open MPI --map-by slot:PE=N gives a process N cores, with MPICH (--mpi mpich) core:N");
  const bool verbose = state.line.srun.value_of("cpu-bind") == "verbose";
  state.line.srun.set("cpu-bind", concat({verbose ? "verbose," : "", found->second}));
  return {};
}

template <const std::string_view& unit>
Done bind_to(MpiState& state, const GivenFlag& /*given*/) {
  state.line.srun.set("cpu-bind", std::string(unit));
  return {};
}
constexpr std::string_view cores = "cores";
constexpr std::string_view sockets = "sockets";

Done report_bindings(MpiState& state, const GivenFlag& /*given*/) {
  const std::string_view now = state.line.srun.value_of("cpu-bind");
  state.line.srun.set("cpu-bind", now.empty() ? "verbose" : concat({"verbose,", now}));
  return {};
}

/// Variables of the caller reach the tasks anyway; values are set.
Done set_variable(MpiState& state, const GivenFlag& given) {
  const std::string& word = given.value();
  const auto equals = word.find('=');
  if (equals == 0) return invalid_value(given, "write NAME or NAME=VALUE");
  if (equals == std::string::npos) return {};
  state.line.set_variable(word.substr(0, equals), word.substr(equals + 1));
  state.exported.push_back(word.substr(0, equals));
  return {};
}

/// Whether a parameter concerns the machinery that Slurm replaces.
bool is_of_runtime(std::string_view parameter) {
  constexpr std::array<std::string_view, 12> frameworks = {"plm", "rmaps", "ras",     "orte",   "prte",  "odls",
                                                           "oob", "rml",   "grpcomm", "routed", "state", "errmgr"};
  const std::string_view framework = parameter.substr(0, parameter.find('_'));
  return std::ranges::find(frameworks, framework) != frameworks.end();
}

/// A name that becomes part of a variable's.
Done check_name(const GivenFlag& given) {
  if (!given.value().empty() && given.value().find('=') == std::string::npos) return {};
  return invalid_value(given, "a name is not empty and has no =");
}

/// An MPI program reads its parameters from the environment, whichever launcher starts it.
Done set_mca(MpiState& state, const GivenFlag& given) {
  if (auto status = check_name(given); !status) return status;
  const std::string& name = given.values[0];
  if (is_of_runtime(name)) {
    state.line.note(concat({given.name, " ", name, " is ignored: Slurm does that part of mpirun's work"}));
    return {};
  }
  state.line.set_variable(concat({"OMPI_MCA_", name}), given.values[1]);
  return {};
}

Done set_pmix_mca(MpiState& state, const GivenFlag& given) {
  if (auto status = check_name(given); !status) return status;
  state.line.set_variable(concat({"PMIX_MCA_", given.values[0]}), given.values[1]);
  return {};
}

Done unset_variable(MpiState& state, const GivenFlag& given) {
  if (auto status = check_name(given); !status) return status;
  state.unset.push_back(given.value());
  return {};
}

Done set_label(MpiState& state, const GivenFlag& /*given*/) {
  state.line.srun.set("label");
  return {};
}

/// Open MPI makes FOLDER/.../rank.N/stdout.
Done set_output_folder(MpiState& state, const GivenFlag& given) {
  const std::string folder = given.value().substr(0, given.value().find(':'));
  state.line.folders.push_back(folder);
  state.line.srun.set("output", concat({folder, "/rank.%t.stdout"}));
  state.line.srun.set("error", concat({folder, "/rank.%t.stderr"}));
  return {};
}

/// PRRTE takes a word for a directive if either begins with the other, part by part between hyphens, in any case.
bool is_directive(std::string_view word, std::string_view known) {
  const auto parts = text::split(word, '-');
  const auto wanted = text::split(known, '-');
  if (parts.size() > wanted.size()) return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = text::to_lower(parts[i]);
    const bool whole = parts.size() == 1 && wanted.size() == 1;
    if (!wanted[i].starts_with(part) && !(whole && part.starts_with(wanted[i]))) return false;
  }
  return true;
}

/// A list of directives that has no effect here is still checked against PRRTE's table: "map,allocation:parsable".
Done check_directives(const GivenFlag& given, std::string_view directives, std::string_view qualifiers) {
  const auto is_one_of = [](std::string_view word, std::string_view list) {
    const auto known = text::split(list, ' ');
    return std::ranges::any_of(known, [&](std::string_view each) { return is_directive(word, each); });
  };
  if (given.value().empty()) return invalid_value(given, concat({"use some of ", directives}));
  for (const std::string_view item : text::split(given.value(), ',')) {
    if (item.empty()) continue;
    const auto colon = item.find(':');
    const std::string_view word = item.substr(0, std::min(colon, item.find('=')));
    if (!word.empty() && !is_one_of(word, directives)) {
      return invalid_value(given, concat({quote(word), " is not one of ", directives}));
    }
    if (colon == std::string_view::npos || qualifiers.empty()) continue;
    for (const std::string_view qualifier : text::split(item.substr(colon + 1), ':')) {
      if (is_one_of(qualifier.substr(0, qualifier.find('=')), qualifiers)) continue;
      return invalid_value(given, concat({quote(qualifier), " is not one of ", qualifiers}));
    }
  }
  return {};
}

Done check_display(MpiState& /*state*/, const GivenFlag& given) {
  return check_directives(given, "allocation map bind map-devel topo cpus", "parseable parsable");
}

Done check_runtime_options(MpiState& state, const GivenFlag& given) {
  auto checked = check_directives(
      given,
      "error-nonzero-status donotlaunch show-progress recoverable continuous max-restarts exec-agent stop-on-exec "
      "stop-in-init stop-in-app timeout spawn-timeout report-state-on-timeout get-stack-traces "
      "report-child-jobs-separately aggregate-help notifyerrors output-proctable fwd-environment",
      "");
  state.dry_run = state.dry_run || text::to_lower(given.value()) == "donotlaunch";
  return checked;
}

/// Open MPI 5: --output tag,file=NAME,...
Done set_output(MpiState& state, const GivenFlag& given) {
  auto checked = check_directives(
      given, "tag tag-detailed tag-fullname rank timestamp xml merge-stderr-to-stdout directory filename",
      "nocopy raw");
  if (!checked) return checked;
  for (const std::string_view word : text::split(given.value(), ',')) {
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, std::min(equals, word.find(':')));
    if (name.empty()) continue;
    const bool names_folder = is_directive(name, "directory") || is_directive(name, "filename");
    if (is_directive(name, "tag") || is_directive(name, "rank") || is_directive(name, "tag-detailed") ||
        is_directive(name, "tag-fullname")) {
      state.line.srun.set("label");
    } else if (names_folder && equals == std::string_view::npos) {
      return invalid_value(given, concat({"write ", name, "=FOLDER"}));
    } else if (names_folder) {
      const GivenFlag folder{given.flag, given.name, {std::string(word.substr(equals + 1))}};
      if (auto status = set_output_folder(state, folder); !status) return status.error();
    } else {
      state.line.note(concat({given.name, " ", name, " is ignored: srun has nothing like it"}));
    }
  }
  return {};
}

Done set_folder(MpiState& state, const GivenFlag& given) {
  if (!state.folder.empty() && state.folder != given.value()) return given_twice(given);
  state.folder = given.value();
  return {};
}

Done set_timeout(MpiState& state, const GivenFlag& given) {
  const auto seconds = number_of(given, 1, 31536000);
  if (!seconds) return seconds.error();
  const std::uint32_t minutes = (*seconds + 59) / 60;
  state.line.srun.set("time", std::to_string(minutes));
  if (*seconds % 60 != 0) {
    state.line.note(
        concat({given.name, " ", given.value(), ": Slurm counts minutes, so it is ", std::to_string(minutes)}));
  }
  return {};
}

Done set_input(MpiState& state, const GivenFlag& given) {
  const bool number = text::to_number(given.value(), 1U << 30U).has_value();
  if (!number && given.value() != "all" && given.value() != "none")
    return invalid_value(given, "use a rank, all or none");
  state.line.srun.set("input", given.value());
  return {};
}

template <const std::string_view& option>
Done set_option(MpiState& state, const GivenFlag& /*given*/) {
  state.line.srun.set(option);
  return {};
}
constexpr std::string_view quiet = "quiet";
constexpr std::string_view bcast = "bcast";

constexpr std::string_view no_daemons = "there are no daemons of Open MPI: Slurm starts the processes";
constexpr std::string_view see_explain = "aml-dist explain shows the layout";
constexpr std::string_view no_files = "write its contents as flags or variables";
constexpr std::string_view no_debugger = "attach the debugger to the step, or start it in the program's place";
constexpr std::string_view no_restart = "a failed process ends the step; --requeue on the job starts it again";
constexpr std::string_view no_rankfile =
    "write the hosts, one for each rank, into a file: SLURM_HOSTFILE=FILE with "
    "--slurm=--distribution=arbitrary";

std::vector<Row<MpiState>> shape_rows() {
  return {
      {{"-c -n --n -np --np", 1, F::translated, "--ntasks=N"}, set_number<&MpiState::processes>},
      {{"-npernode --npernode -N", 1, F::translated, "--ntasks-per-node=N"}, set_number<&MpiState::per_node>},
      {{"-pernode --pernode", 0, F::translated, "--ntasks-per-node=1"}, set_one_per_node},
      {{"-npersocket --npersocket", 1, F::translated, "--ntasks-per-socket=N"}, set_per_socket},
      {{"-ppr --ppr", 1, F::translated, "--ntasks-per-node=N or the like"},
       [](MpiState& state, const GivenFlag& given) {
         return set_mapping(state, {given.flag, given.name, {concat({"ppr:", given.value()})}});
       }},
      {{"-map-by --map-by", 1, F::translated,
        "node: --distribution=cyclic; slot, core: block; socket, numa: block:cyclic; ppr:N:node: --ntasks-per-node=N; "
        ":PE=N: "
        "--cpus-per-task=N; :OVERSUBSCRIBE: --overcommit"},
       set_mapping},
      {{"-rank-by --rank-by", 1, F::translated, "node: --distribution=cyclic; slot: block; others are refused"},
       set_ranking},
      {{"-bind-to --bind-to", 1, F::translated, "--cpu-bind=none, cores, threads, sockets or ldoms"}, set_binding},
      {{"-bind-to-core --bind-to-core", 0, F::translated, "--cpu-bind=cores"}, bind_to<cores>},
      {{"-bind-to-socket --bind-to-socket", 0, F::translated, "--cpu-bind=sockets"}, bind_to<sockets>},
      {{"-report-bindings --report-bindings", 0, F::translated, "--cpu-bind=verbose"}, report_bindings},
      {{"-bynode --bynode", 0, F::translated, "--distribution=cyclic"},
       [](MpiState& state, const GivenFlag&) { return choose_distribution(state, Distribution::by_node), Done(); }},
      {{"-byslot --byslot", 0, F::translated, "--distribution=block"},
       [](MpiState& state, const GivenFlag&) { return choose_distribution(state, Distribution::by_slot), Done(); }},
      {{"-bycore --bycore", 0, F::translated, "--distribution=block"},
       [](MpiState& state, const GivenFlag&) { return choose_distribution(state, Distribution::by_slot), Done(); }},
      {{"-cpus-per-proc --cpus-per-proc -cpus-per-rank --cpus-per-rank", 1, F::translated, "--cpus-per-task=N"},
       set_cpus},
  };
}

std::vector<Row<MpiState>> host_rows() {
  return {
      {{"-H -host --host", 1, F::translated, "--nodelist and the tasks on each node"}, add_hosts},
      {{"-machinefile --machinefile -hostfile --hostfile", 1, F::translated, "--nodelist and the tasks on each node"},
       add_hostfile},
      {{"-default-hostfile --default-hostfile", 1, F::translated, "as --hostfile"}, add_hostfile},
      {{"-oversubscribe --oversubscribe", 0, F::translated, "--overcommit"}, set_oversubscribe},
      {{"-nooversubscribe --nooversubscribe", 0, F::ignored, "it is what Slurm does"}, set_nooversubscribe},
      {{"-use-hwthread-cpus --use-hwthread-cpus", 0, F::translated, "--hint=multithread"},
       [](MpiState& state, const GivenFlag&) { return state.line.srun.set("hint", "multithread"), Done(); }},
      refused("-nolocal --nolocal", 0, "use --slurm=--exclude=NODE: the login machine is not one of the job's nodes"),
      refused("-rf -rankfile --rankfile", 1, no_rankfile),
      refused("-cpu-set --cpu-set", 1, "the CPUs of a job are Slurm's choice: --slurm=--cpu-bind=map_cpu:LIST"),
      refused("-cpu-list --cpu-list", 1, "the CPUs of a job are Slurm's choice: --slurm=--cpu-bind=map_cpu:LIST"),
      refused("-cf --cartofile -cartofile", 1, "Slurm knows the machine"),
  };
}

std::vector<Row<MpiState>> environment_rows() {
  return {
      {{"--x -x", 1, F::translated,
        "NAME=VALUE is set for srun, after a : for that program alone; a bare NAME reaches the tasks anyway"},
       set_variable},
      {{"--set-env", 1, F::translated, "as -x"}, set_variable},
      {{"--unset-env", 1, F::translated, "env -u NAME in front of the program"}, unset_variable},
      refused("--append-env", 2, "set the whole value with -x NAME=VALUE"),
      refused("--prepend-env", 2, "set the whole value with -x NAME=VALUE"),
      {{.names = "--fwd-environment",
        .values = 0,
        .handling = F::ignored,
        .becomes = "srun passes on the whole environment",
        .takes_equals = true},
       nullptr},
      {{"-mca --mca", 2, F::translated,
        "OMPI_MCA_NAME=VALUE in the environment; those of mpirun's own parts are ignored"},
       set_mca},
      {{"-omca --omca", 2, F::translated, "as --mca"}, set_mca},
      {{"-gmca --gmca", 2, F::translated, "as --mca"}, set_mca},
      {{"-gomca --gomca", 2, F::translated, "as --mca"}, set_mca},
      {{"--pmixmca", 2, F::translated, "PMIX_MCA_NAME=VALUE in the environment"}, set_pmix_mca},
      {{"--gpmixmca", 2, F::translated, "PMIX_MCA_NAME=VALUE in the environment"}, set_pmix_mca},
      ignored("--prtemca", 2, no_daemons),
      refused("-am --am -amca --amca", 1, no_files),
      refused("-tune --tune", 1, no_files),
      refused("-app --app", 1, "write the programs on the command line, with : between them"),
      {{"-wd --wd -wdir --wdir", 1, F::translated, "--chdir"}, set_folder},
      refused("-set-cwd-to-session-dir --set-cwd-to-session-dir", 0, "there is no session folder: use --wdir"),
      refused("-path --path", 1, "set PATH: srun passes it on"),
      {{"-s --preload-binary", 0, F::translated, "--bcast"}, set_option<bcast>},
      refused("--preload-files", 1, "copy them with sbcast"),
      ignored("--prefix", 1, "Open MPI is found by PATH and LD_LIBRARY_PATH, which srun passes on"),
      ignored("--noprefix", 0, "Open MPI is found by PATH and LD_LIBRARY_PATH, which srun passes on"),
      ignored("--pmix-prefix", 1, "PMIx is Slurm's"),
      ignored("--app-pmix-prefix", 1, "PMIx is found by LD_LIBRARY_PATH, which srun passes on"),
      ignored("--no-app-prefix", 0, "Open MPI is found by PATH and LD_LIBRARY_PATH, which srun passes on"),
  };
}

std::vector<Row<MpiState>> output_rows() {
  return {
      {{"-tag-output --tag-output", 0, F::translated, "--label"}, set_label},
      ignored("-timestamp-output --timestamp-output", 0, "srun does not write the time"),
      {{"-output-filename --output-filename", 1, F::translated,
        "--output and --error in that folder, a file for each rank"},
       set_output_folder},
      {{"-output-directory --output-directory", 1, F::translated, "as --output-filename"}, set_output_folder},
      {{"--output", 1, F::translated, "tag: --label; file=, dir=: as --output-filename; the rest is ignored"},
       set_output},
      ignored("-merge-stderr-to-stdout --merge-stderr-to-stdout", 0, "put 2>&1 after the command"),
      ignored("--stream-buffering", 1, "srun passes lines on as they come (--slurm=--unbuffered: bytes)"),
      refused("-xml --xml", 0, "srun writes no XML"),
      refused("-xml-file --xml-file", 1, "srun writes no XML"),
      refused("-xterm --xterm", 1, "srun opens no windows"),
      {{"-stdin --stdin", 1, F::translated, "--input=RANK, all or none"}, set_input},
      {{"-q --quiet", 0, F::translated, "--quiet"}, set_option<quiet>},
      ignored("-v --verbose", 0, "--slurm=--verbose shows srun's own steps"),
      ignored("-display-map --display-map", 0, see_explain),
      ignored("-display-devel-map --display-devel-map", 0, see_explain),
      ignored("-display-diffable-map --display-diffable-map", 0, see_explain),
      refused("-display-topo --display-topo", 0, "scontrol show node has the node's sockets and cores"),
      ignored("-display-allocation --display-allocation", 0, "scontrol show job shows the allocation"),
      ignored("-display-devel-allocation --display-devel-allocation", 0, "scontrol show job shows the allocation"),
      {{"--display", 1, F::ignored, see_explain}, check_display},
      ignored("--display-comm", 0, "it is a parameter of MPI_Init: --mca hook_comm_method_display 1"),
      ignored("--display-comm-finalize", 0, "it is a parameter of MPI_Finalize: --mca hook_comm_method_display 2"),
      ignored("-show-progress --show-progress", 0, "srun starts all at once"),
      ignored("-report-pid --report-pid", 1, "a step is found by its id: squeue --steps"),
      ignored("-report-uri --report-uri", 1, no_daemons),
      {{.names = "-output-proctable --output-proctable",
        .values = 0,
        .handling = F::ignored,
        .becomes = see_explain,
        .takes_equals = true},
       nullptr},
      ignored("-p --parsable --parseable", 0, "it shapes listings that are not made here"),
  };
}

std::vector<Row<MpiState>> end_rows() {
  return {
      {{"-timeout --timeout", 1, F::translated, "--time, in whole minutes"}, set_timeout},
      ignored("--spawn-timeout", 1, "srun starts all processes of a step or none"),
      ignored("-report-state-on-timeout --report-state-on-timeout", 0, "the accounting keeps how each step ended"),
      ignored("-get-stack-traces --get-stack-traces", 0, "srun collects no stack traces"),
      ignored("-report-child-jobs-separately --report-child-jobs-separately", 0,
              "srun's status is the highest of all tasks"),
      ignored("-disable-recovery --disable-recovery", 0, "it is what Slurm does"),
      refused("-enable-recovery --enable-recovery", 0, no_restart),
      refused("-max-restarts --max-restarts", 1, no_restart),
      refused("-continuous --continuous", 0, no_restart),
      refused("--with-ft", 1,
              "Slurm ends a step with its first failure; --slurm=--kill-on-bad-exit=0 and a PMIx that knows "
              "fault tolerance may do"),
      ignored("-allow-run-as-root --allow-run-as-root", 0, "srun starts what its user may start"),
      ignored("-forward-signals --forward-signals", 1, "srun passes signals on"),
      ignored("--initial-errhandler", 1, "Open MPI's own default holds when Slurm starts the processes"),
      ignored("--memory-alloc-kinds", 1, "Open MPI's own default holds when Slurm starts the processes"),
  };
}

std::vector<Row<MpiState>> runtime_rows() {
  return {
      refused("-debug --debug", 0, no_debugger),
      refused("-tv --tv", 0, no_debugger),
      refused("-debugger --debugger", 1, no_debugger),
      refused("--stop-on-exec", 0, no_debugger),
      refused("--stop-in-init", 0, no_debugger),
      refused("--stop-in-app", 0, no_debugger),
      ignored("-d -debug-devel --debug-devel", 0, no_daemons),
      ignored("-debug-daemons --debug-daemons", 0, no_daemons),
      ignored("-debug-daemons-file --debug-daemons-file", 0, no_daemons),
      ignored("-leave-session-attached --leave-session-attached", 0, no_daemons),
      ignored("-do-not-resolve --do-not-resolve", 0, no_daemons),
      ignored("-enable-instant-on-support --enable-instant-on-support", 0, no_daemons),
      ignored("-fwd-mpirun-port --fwd-mpirun-port", 0, no_daemons),
      ignored("-launch-agent --launch-agent", 1, no_daemons),
      ignored("-max-vm-size --max-vm-size", 1, no_daemons),
      ignored("-novm --novm", 0, no_daemons),
      ignored("-report-events --report-events", 1, no_daemons),
      ignored("-use-regexp --use-regexp", 0, no_daemons),
      ignored("-personality --personality", 1, no_daemons),
      ignored("--hetero-nodes", 0, no_daemons),
      ignored("--keepalive", 1, no_daemons),
      ignored("--set-sid", 0, no_daemons),
      ignored("--tmpdir", 1, "processes find TMPDIR in the environment"),
      ignored("--test-suicide", 1, no_daemons),
      {{"--runtime-options", 1, F::ignored, no_daemons}, check_runtime_options},
      ignored("--no-aggregate-help --do-not-aggregate-help", 0, no_daemons),
  };
}

std::vector<Row<MpiState>> machine_rows() {
  return {
      refused("-dvm --dvm", 0, "Slurm is the machine that persists"),
      refused("-hnp --hnp", 1, "Slurm is the machine that persists"),
      refused("--system-server", 0, "Slurm is the machine that persists"),
      refused("--singleton", 1, "start the program alone"),
      refused("-ompi-server --ompi-server", 1, "names are published within a step only"),
      refused("--pset", 1, "Slurm makes no process sets"),
      refused("--add-host", 1, "a job keeps the nodes that it starts with"),
      refused("--add-hostfile", 1, "a job keeps the nodes that it starts with"),
      refused("-index-argv-by-rank --index-argv-by-rank", 0,
              "write $RANK in the arguments: it is expanded in each task"),
      {{"-do-not-launch --do-not-launch", 0, F::translated, "as --dry-run"}, mark<&Base::dry_run>},
      refused("--soft", 0, "give the number of processes with -n"),
      refused("--arch", 1, "use --slurm=--constraint=FEATURE"),
      refused("--file", 1, "write the programs on the command line, with : between them"),
      {{"-h --help", 0, F::translated, "examples and the flags that matter"}, mark<&Base::help>},
      {{"-V --version", 0, F::translated, "the release of aml-dist"}, mark<&Base::version>},
  };
}

}  // namespace

std::vector<Row<MpiState>> mpi_rows() {
  return join_rows({shape_rows(), host_rows(), environment_rows(), output_rows(), end_rows(), runtime_rows(),
                    machine_rows(), own_rows<MpiState>()});
}

}  // namespace amldist::launchers
