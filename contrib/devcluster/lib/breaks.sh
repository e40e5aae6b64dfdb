# shellcheck shell=bash
# Faults on purpose, and back to health. Each fault HOW has break_HOW and heal_HOW (- becomes _);
# what is broken is remembered as a file in the machine's folder `broken`.

help_break() {
    cat <<'HELP'
devcluster break [--name NAME] NODE|all HOW
devcluster break [--name NAME] ctl down
devcluster heal  [--name NAME] NODE|login|ctl|all

  down            slurmd is killed (ctl: slurmctld)
  link            the cable is unplugged: the node cannot be reached
  loopback-name   the node's own name resolves to 127.0.1.1 there, as on a stock Debian
  no-plugin       the SPANK plugin's file is missing on that node
  full-tmp        /tmp is tiny and full
  slow-dns        look-ups that /etc/hosts cannot answer go to a server that never replies

NODE may be login for the last four. heal repairs everything and waits until
the nodes are idle.
HELP
}

readonly BREAKS='down link loopback-name no-plugin full-tmp slow-dns'

cmd_break() {
    parse_options_anywhere 'name=' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_break; return; fi
    [[ ${#REST[@]} -eq 2 ]] || usage_error "break: give NODE HOW ($BREAKS)"
    local machine=${REST[0]} how=${REST[1]}
    need_cluster "${OPT[name]-}"
    refuse_inside
    lock_cluster
    if [[ $machine != all ]]; then break_machine "$machine" "$how"; return; fi
    for machine in ${P[names]}; do break_machine "$machine" "$how"; done
}

break_machine() {
    local machine=$1 how=$2
    check_break "$machine" "$how"
    if [[ -e $STATE/machines/$machine/broken/$how ]]; then say "$machine is already broken: $how"; return; fi
    "break_${how//-/_}" "$machine" || fail "cannot apply fault $how to '$machine'"
    [[ ! -d $STATE/machines/$machine ]] || : >"$STATE/machines/$machine/broken/$how"
    say "$machine is broken: $how (devcluster heal $machine)"
}

check_break() {
    local machine=$1 how=$2
    [[ " $BREAKS " == *" $how "* ]] || usage_error "break: HOW is one of $BREAKS"
    if [[ $machine == ctl ]]; then
        [[ $how == down ]] || usage_error 'break ctl: only down'
        return 0
    fi
    [[ $machine == login ]] || is_node "$machine" || usage_error "cluster '$NAME' has no node '$machine'"
    [[ $machine != login || $how != down && $how != link ]] || usage_error "login cannot be broken by $how (break ctl down)"
    if single_host && [[ $how != down ]]; then fail "fault $how needs namespaces; this cluster has none"; fi
}

break_down() { if [[ $1 == ctl ]]; then kill_daemon slurmctld; else kill_daemon "$1"; fi; }
heal_down()  { :; }   # heal_machines brings back every daemon

# Applied at the switch's end, like a pulled cable: the node keeps its address.
break_link() { in_network switch ip link set "port$(node_index "$1")" down; }
heal_link()  { in_network switch ip link set "port$(node_index "$1")" up; }

# Written in place: the files are mounted, so a new file would not be seen.
break_loopback_name() { write_hosts "$1" loopback-name >"$STATE/machines/$1/hosts"; }
heal_loopback_name()  { write_hosts "$1" >"$STATE/machines/$1/hosts"; }

break_full_tmp() {
    enter "$1" bash -c 'mount -t tmpfs -o size=64k,mode=1777 full /tmp && head -c 1M /dev/zero >/tmp/full 2>/dev/null; [[ -s /tmp/full ]]'
}
heal_full_tmp() { enter "$1" umount -l /tmp; }

# Packets to the name server go to an address that no machine has: no answer, and no error.
break_slow_dns() {
    in_network "$1" ip neigh replace "$(dead_address)" lladdr 02:00:00:00:00:01 dev eth0 nud permanent || return 1
    echo "nameserver $(dead_address)" >"$STATE/machines/$1/resolv.conf"
    write_nsswitch 'files dns' >"$STATE/machines/$1/nsswitch.conf"
}
heal_slow_dns() {
    write_healthy_resolver "$1"
    in_network "$1" ip neigh del "$(dead_address)" dev eth0
}
dead_address() { machine_address "${P[subnet]}" "$(subnet_room "${P[subnet]}")"; }

# The plugin's folder is replaced by one that has everything but the plugin.
break_no_plugin() {
    local file
    [[ -n ${P[plugin]} ]] || { say "cluster '$NAME' has no plugin"; return 1; }
    file=$(visible_plugin)
    # shellcheck disable=SC2016  # the inner shell expands it
    enter "$1" bash -c '
        real=$1 folder=${2%/*}
        mount --bind "$folder" "$real" && mount -t tmpfs -o mode=0755 hidden "$folder" || exit 1
        shopt -s nullglob dotglob
        for entry in "$real"/*; do
            [[ $entry == "$real/${2##*/}" ]] || ln -s "$entry" "$folder/" || exit 1
        done' hide "$STATE/machines/$1/mnt" "$file"
    echo "${file%/*}" >"$STATE/machines/$1/hidden"
}
heal_no_plugin() {
    # shellcheck disable=SC2016  # the inner shell expands it
    enter "$1" bash -c 'umount -l "$1"; umount -l "$2"' show "$(<"$STATE/machines/$1/hidden")" "$STATE/machines/$1/mnt"
}

cmd_heal() {
    parse_options_anywhere 'name=' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_break; return; fi
    [[ ${#REST[@]} -eq 1 ]] || usage_error 'heal: give NODE, login, ctl or all'
    need_cluster "${OPT[name]-}"
    refuse_inside
    lock_cluster
    case ${REST[0]} in
    all) # shellcheck disable=SC2086  # a list of names
         heal_machines login ${P[names]} ;;
    ctl) # shellcheck disable=SC2046
         heal_machines $(unbroken_nodes) ;;
    login) heal_machines login ;;
    *) is_node "${REST[0]}" || usage_error "cluster '$NAME' has no node '${REST[0]}'"
       heal_machines "${REST[0]}" ;;
    esac
}

heal_machines() {
    local machine nodes=''
    daemon_alive munged || start_munged || exit 1
    daemon_alive slurmctld || start_slurmctld || exit 1
    for machine in "$@"; do
        undo_breaks "$machine"
        if [[ $machine == login ]]; then continue; fi
        nodes+=" $machine"
        single_host || daemon_alive "munged@$machine" || start_munged "$machine" || exit 1
        daemon_alive "$machine" || start_slurmd "$machine"
    done
    # shellcheck disable=SC2086  # a list of names
    if [[ -z ${nodes// /} ]] || wait_until 1 nodes_ready $nodes; then say "healthy:${nodes:- slurmctld}"; return; fi
    # shellcheck disable=SC2086  # a list of names
    resume_nodes $nodes
    # shellcheck disable=SC2086  # a list of names
    wait_for_nodes $nodes || exit 1
    say "healthy:$nodes"
}

undo_breaks() {
    local how
    for how in $(broken_ways "$1"); do
        "heal_${how//-/_}" "$1" || say "$1: $how could not be undone completely"
        rm -f "$STATE/machines/$1/broken/$how"
    done
}

broken_ways() {
    local file ways=''
    for file in "$STATE/machines/$1/broken"/*; do
        if [[ -e $file ]]; then ways+=" ${file##*/}"; fi
    done
    echo "${ways# }"
}

unbroken_nodes() {
    local node
    for node in ${P[names]}; do
        if [[ -z $(broken_ways "$node") ]]; then echo "$node"; fi
    done
}

resume_nodes() {
    local node
    ask_resume "$@"
    wait_until 2 nodes_ready "$@" && return
    # slurmctld polls a silent node only rarely; a restarted slurmd registers at once.
    # The steps on the node go on, each has its own slurmstepd.
    for node in "$@"; do
        if nodes_ready "$node"; then continue; fi
        kill_daemon "$node"
        start_slurmd "$node"
    done
    wait_until 5 nodes_ready "$@" || ask_resume "$@"
}

# For nodes that are drained or down; slurmctld refuses it for the others.
ask_resume() {
    local node
    for node in "$@"; do
        nodes_ready "$node" || enter login env -i PATH="$DAEMON_PATH" SLURM_CONF="$STATE/slurm/slurm.conf" \
            timeout 10 scontrol update "nodename=$node" state=resume >/dev/null 2>&1 || true  # refused where the node is up again
    done
}
