# shellcheck shell=bash

help_start() {
    cat <<'HELP'
devcluster start [options]

  devcluster start --nodes 2 --cpus 4
  devcluster start --name b --node-list 'rack[0-1]b[0-1]' --gres gpu:4
  devcluster start --plugin ./spank_aml_dist.so --plugin-args 'master_addr=name'
  devcluster start --conf MpiParams=ports=12000-12999 --conf 'PartitionName=p2 Nodes=node1'

  --name NAME           the cluster (aml); several may run at the same time
  --nodes N             nodes named node1 .. nodeN (4)
  --node-list LIST      or these names, in Slurm's notation
  --cpus N              CPUs that each node claims to have (8)
  --memory MB           memory that each node claims to have (8192)
  --gres gpu:N          simulated GPUs per node
  --release NAME        Slurm of another Debian: bookworm, trixie or forky (default: this machine's);
                        'devcluster root --help' has more
  --subnet A.B.C.D/P    addresses (derived from the name)
  --ipv6                the names have IPv6 addresses only (fd00::A.B.C.D)
  --ports BASE          slurmctld's port; slurmd's is the next (6817)
  --plugin FILE         SPANK plugin, with --plugin-args 'ARGS', --plugin-mode required|optional
  --plugstack FILE      more lines for plugstack.conf
  --conf KEY=VALUE      slurm.conf: replaces the default, or adds a line (repeatable)
  --configless          the nodes have no slurm.conf: each slurmd asks slurmctld for the files
  --accounting          with slurmdbd and MariaDB on the login machine, for sacct
  --single-host         no namespaces: all slurmds on this host, under its name
  --restart             replace a running cluster of that name

It is not an error to start a running cluster; a damaged one is repaired.
HELP
}

readonly START_OPTIONS='name= nodes= node-list= cpus= memory= subnet= ports= plugin= plugin-args=
 plugin-mode= plugstack= conf=* gres= release= ipv6 configless accounting single-host restart'

cmd_start() {
    parse_options "${START_OPTIONS//$'\n'/}" "$@"
    if [[ -n ${OPT[help]-} ]]; then help_start; return; fi
    [[ ${#REST[@]} -eq 0 ]] || usage_error "start: unexpected '${REST[0]}'"
    use_cluster "${OPT[name]-}"
    refuse_inside
    check_start_options
    prepare_release
    lock_cluster
    trap '[[ -d $STATE ]] || remove_lock' EXIT
    if [[ -f $STATE/params && -z ${OPT[restart]-} ]]; then start_again; return; fi
    if [[ -n ${OPT[accounting]-} ]]; then check_accounting "${OPT[root]}"; fi
    choose_params
    start_new
}

check_start_options() {
    local node
    is_count nodes 1 200; is_count cpus 1 1024; is_count memory 1 100000000; is_count ports 1024 65000
    [[ -z ${OPT[nodes]-} || -z ${OPT[node-list]-} ]] || usage_error '--nodes or --node-list, not both'
    [[ -z ${OPT[subnet]-} ]] || check_subnet "${OPT[subnet]}"
    [[ ${OPT[plugin-mode]-required} =~ ^(required|optional)$ ]] || usage_error '--plugin-mode is required or optional'
    [[ ${OPT[gres]-gpu:1} =~ ^[a-z]+:[1-9][0-9]?$ ]] || usage_error '--gres is gpu:N'
    [[ -z ${OPT[plugin]-} ]] || OPT[plugin]=$(plugin_path "${OPT[plugin]}") || exit 1
    if [[ -n ${OPT[release]-} ]]; then check_release "${OPT[release]}"; fi
    check_plugstack_option
    [[ -z ${OPT[ipv6]-}${OPT[configless]-}${OPT[accounting]-} || -z ${OPT[single-host]-} ]] || usage_error '--ipv6, --configless and --accounting need namespaces'
    for node in $(asked_names); do check_node_name "$node"; done
    check_conf_option
}

# Sets OPT[root] to the folder of the other release, empty for this machine itself.
prepare_release() {
    OPT[root]=''
    if [[ -n ${OPT[release]-} ]]; then OPT[root]=$(root_of "${OPT[release]}"); fi
    check_prerequisites "${OPT[root]}"
    if [[ -z ${OPT[root]} ]]; then return; fi
    if [[ -n ${OPT[single-host]-} ]] || ! namespaces_allowed; then fail '--release needs namespaces'; fi
    make_root "${OPT[release]}" "${OPT[root]}"
}

is_count() {
    local value=${OPT[$1]-$2}
    if ! [[ $value =~ ^[0-9]{1,9}$ ]] || ((10#$value < $2 || 10#$value > $3)); then
        usage_error "--$1 is a number from $2 to $3"
    fi
    if [[ -n ${OPT[$1]-} ]]; then OPT[$1]=$((10#$value)); fi
}

check_plugstack_option() {
    if [[ -z ${OPT[plugstack]-} ]]; then return; fi
    [[ -f ${OPT[plugstack]} ]] || fail "--plugstack: no file ${OPT[plugstack]}"
    OPT[plugstack]=$(readlink -f -- "${OPT[plugstack]}")
}

check_conf_option() {
    local line
    while IFS= read -r line; do
        [[ -z $line || $line =~ ^[A-Za-z]+=. ]] || usage_error "--conf '$line': give Key=Value"
    done <<<"${OPT[conf]-}"
}

asked_names() {
    local i
    if [[ -n ${OPT[node-list]-} ]]; then expand_hostlist "${OPT[node-list]}"; return; fi
    for ((i = 1; i <= ${OPT[nodes]:-4}; i++)); do echo "node$i"; done
}

choose_params() {
    local names
    names=$(asked_names)
    [[ -z $(sort <<<"$names" | uniq -d) ]] || usage_error "--node-list names a node twice"
    P=([names]=${names//$'\n'/ } [cpus]=${OPT[cpus]:-8} [memory]=${OPT[memory]:-8192}
       [plugin]=${OPT[plugin]-} [plugin_args]=${OPT[plugin-args]-} [plugin_mode]=${OPT[plugin-mode]:-required}
       [plugstack]=${OPT[plugstack]-} [conf]=${OPT[conf]-} [gres]=${OPT[gres]-} [release]=${OPT[release]-} [ipv6]=${OPT[ipv6]-} [configless]=${OPT[configless]-} [accounting]=${OPT[accounting]-} [root]=${OPT[root]} [mode]=namespaces [subnet]='')
    choose_mode
    if single_host; then choose_ports; else P[ports]=${OPT[ports]:-6817}; choose_subnet; fi
}

choose_mode() {
    if [[ -n ${OPT[single-host]-} ]]; then P[mode]=single-host; return; fi
    if namespaces_allowed; then return; fi
    say 'this machine does not allow namespaces: all slurmds run on this host, under its name'
    P[mode]=single-host
}

choose_subnet() {
    local owner
    P[subnet]=${OPT[subnet]:-$(derive_subnet "$NAME")}
    owner=$(subnet_owner "${P[subnet]}" "$NAME")
    [[ -z $owner ]] || fail "subnet ${P[subnet]} overlaps that of cluster '$owner'"
    [[ $(wc -w <<<"${P[names]}") -le $(subnet_room "${P[subnet]}") ]] || usage_error "subnet ${P[subnet]} is too small"
}

# On a single host every daemon needs its own port.
choose_ports() {
    local base=${OPT[ports]:-} try count
    count=$(wc -w <<<"${P[names]}")
    if [[ -n $base ]]; then
        ports_free "$base" "$count" || fail "a port from $base to $((base + count)) is in use"
        P[ports]=$base; return
    fi
    base=$(name_hash "$NAME")
    for ((try = 0; try < 40; try++)); do
        P[ports]=$((21000 + (base + try) % 40 * 250))
        if ports_free "${P[ports]}" "$count"; then return; fi
    done
    fail 'no free ports: name the first with --ports'
}

ports_free() {
    local port hex listening
    listening=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
    for ((port = $1; port <= $1 + $2; port++)); do
        printf -v hex ':%04X ' "$port"
        [[ $listening != *"$hex"* ]] || return 1
    done
}

start_new() {
    local began=$EPOCHREALTIME
    # However this script ends, nothing may be left behind; after a SIGKILL, `stop` cleans up.
    trap 'abandon_start' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    teardown_old
    mkdir -p "$STATE"/{slurm,etc,machines,log,spool,ctl,munge,home,tmp}
    : >"$STATE/building"   # a start that is killed leaves this mark
    save_params
    build_cluster
    trap - EXIT INT TERM HUP
    announce "$began"
}

teardown_old() {
    kill_everything || exit 1
    rm -rf --one-file-system -- "$STATE"
}

abandon_start() {
    trap '' INT TERM HUP
    say "giving up: removing what was started of cluster '$NAME'"
    teardown || true  # it has said what stays
}

build_cluster() {
    local machine node
    say "cluster '$NAME': Slurm $(slurm_version), nodes ${P[names]}${P[subnet]:+, subnet ${P[subnet]}}"
    write_config
    write_munge_keys
    if ! single_host; then
        write_users
        say 'making the machines'
        for machine in $(machine_names); do write_machine_files "$machine"; done
        create_machines || exit 1
        connect_machines || fail 'the network could not be created'
    fi
    say 'starting munged, slurmctld and the slurmds'
    start_munged || exit 1
    ! accounting || start_accounting || exit 1
    start_slurmctld || exit 1
    for node in ${P[names]}; do start_slurmd "$node"; done
    # shellcheck disable=SC2086  # a list of names
    wait_for_nodes ${P[names]} || exit 1
    rm "$STATE/building"
}

announce() {
    local ms=$(((${EPOCHREALTIME/[.,]/} - ${1/[.,]/}) / 1000))
    say "all nodes idle after $((ms / 1000)).$((ms % 1000 / 100)) s; next: devcluster run${OPT[name]:+ --name $NAME} -- srun -N2 hostname"
}

# A cluster of that name is there already.
start_again() {
    load_params
    refuse_difference
    local dead='' machine daemon
    if [[ -e $STATE/building ]]; then
        say "an earlier start of '$NAME' did not finish; starting again"
        start_new; return
    fi
    if ! single_host; then
        for machine in switch $(machine_names); do
            [[ -n $(machine_pid "$machine") ]] || dead+=" $machine"
        done
        if [[ -n $dead ]]; then say "machines gone:$dead; rebuilding the cluster"; start_new; return; fi
    fi
    for daemon in $(daemon_names); do
        daemon_alive "$daemon" || dead+=" $daemon"
    done
    # shellcheck disable=SC2086  # a list of names
    if [[ -z $dead ]] && nodes_ready ${P[names]}; then say "cluster '$NAME' is already running"; return; fi
    say "cluster '$NAME' is partly down; restarting:${dead:-$NOT_READY}"
    # shellcheck disable=SC2086  # a list of names
    heal_machines ${P[names]}
}

# Compares only the options given on this command line.
refuse_difference() {
    local key differ=''
    for key in cpus memory subnet ports plugin plugin-args plugin-mode plugstack conf gres release ipv6 configless accounting; do
        if [[ -n ${OPT[$key]+x} && ${OPT[$key]} != "${P[${key//-/_}]}" ]]; then differ+=" --$key"; fi
    done
    if [[ -n ${OPT[nodes]-}${OPT[node-list]-} && $(asked_names | tr '\n' ' ') != "${P[names]} " ]]; then
        differ+=' --nodes'
    fi
    if [[ -n ${OPT[single-host]-} ]] && ! single_host; then differ+=' --single-host'; fi
    [[ -z $differ ]] || fail "cluster '$NAME' runs with a different$differ: add --restart to replace it"
}
