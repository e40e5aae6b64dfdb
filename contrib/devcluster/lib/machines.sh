# shellcheck shell=bash
# Machines made of namespaces: login, the nodes, and a switch that holds the bridge, so that
# nothing shows in the host's own network.

machine_names() { echo "login ${P[names]}"; }

# find_machine MACHINE: sets MACHINE_PID; fails if the machine is gone
MACHINE_PID=''
find_machine() {
    MACHINE_PID=''
    read -r MACHINE_PID 2>/dev/null <"$STATE/machines/$1/pid" && is_tagged "$MACHINE_PID"
}

machine_pid() { find_machine "$1" && echo "$MACHINE_PID"; }

namespaces_allowed() {
    [[ $EUID -eq 0 ]] || return 1
    unshare --net --uts --mount --ipc --pid --fork --mount-proc \
        bash -c 'ip link add br0 type bridge && mount -t tmpfs none /tmp' >/dev/null 2>&1
}

# enter MACHINE COMMAND...
enter() {
    if single_host; then shift; "$@"; return; fi
    find_machine "$1" || { say "machine '$1' of cluster '$NAME' is gone"; return 1; }
    shift
    # --root, because a mount namespace made in a chroot begins at the real root.
    nsenter -t "$MACHINE_PID" -m -u -i -n -p --root -- "$@"
}

# in_network MACHINE COMMAND...: only its network, to set it up with the host's tools
in_network() { nsenter --net="/proc/$(machine_pid "$1")/ns/net" "${@:2}"; }

create_machines() {
    local machine
    mkdir -p "$STATE/machines/switch"
    # shellcheck disable=SC2016  # the inner shell expands it
    (detached setsid unshare --net bash -c \
        'echo $$ >"$1/pid.new" && mv "$1/pid.new" "$1/pid" && exec sleep infinity' \
        switch "$STATE/machines/switch" >"$STATE/log/switch.init.log" 2>&1) &
    for machine in $(machine_names); do
        (detached setsid unshare --net --uts --mount --ipc --pid --fork --kill-child=KILL \
            "$LIB/machine-init.sh" "$STATE" "$machine" "${P[root]-}" "${P[configless]-}" >"$STATE/log/$machine.init.log" 2>&1) &
    done
    for machine in switch $(machine_names); do
        wait_for_start test -s "$STATE/machines/$machine/pid" && continue
        say "machine '$machine' did not start"
        show_tail "$STATE/log/$machine.init.log"
        return 1
    done
}

# All cables in one batch: one process for the whole network instead of several per node.
connect_machines() {
    local machine index
    {   echo 'link add br0 type bridge forward_delay 0'
        echo 'link set br0 up'
        for machine in $(machine_names); do
            index=$(node_index "$machine")
            echo "link add port$index type veth peer name eth0 netns $(machine_pid "$machine")"
            echo "link set port$index master br0 up"
        done
    } | in_network switch ip -batch - || return 1
    local prefix=${P[subnet]#*/} more='brd +'
    if ipv6_only; then prefix=$((96 + prefix)) more=nodad; fi  # an address is used at once, not after a second of asking
    for machine in $(machine_names); do
        {   echo 'link set lo up'
            echo "addr add $(address_of "$machine")/$prefix $more dev eth0"
            echo 'link set eth0 up'
        } | in_network "$machine" ip -batch - || return 1
    done
}
