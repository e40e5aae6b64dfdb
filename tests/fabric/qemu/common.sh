# shellcheck shell=bash
# What every guest begins with. TOOL names aml-dist; results go to /results/tap.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C HOME=/root
exec 3>>/results/tap
mount -t tmpfs tmpfs /tmp
mount -t tmpfs run /run
mkdir -p /dev/shm
ip link set lo up
echo guest >/proc/sys/kernel/hostname

# add_rxe INTERFACE ADDRESS: a soft-RoCE device, and time for its IPv4 GID
add_rxe() {
    ip addr add "$2/24" dev "$1"
    ip link set "$1" up
    rdma link add rxe0 type rxe netdev "$1"
    local i
    for ((i = 0; i < 100; ++i)); do
        grep -qs 'ffff:' /sys/class/infiniband/rxe0/ports/1/gids/* && break
        sleep 0.1
    done
    chmod 666 /dev/infiniband/uverbs0
}

# expect NAME STATUS 'LINE'... -- COMMAND...: exit status, and a line of the table for each extended regular expression
expect() {
    local name=$1 status=$2 got line
    shift 2
    local -a lines=()
    while [[ $1 != -- ]]; do lines+=("$1"); shift; done
    shift
    "$@" >/tmp/out 2>&1
    got=$?
    local verdict=ok
    [[ $got == "$status" ]] || verdict='not ok'
    for line in "${lines[@]}"; do grep -Eq -- "$line" /tmp/out || verdict='not ok'; done
    printf '%s - %s\n' "$verdict" "$name" >&3
    [[ $verdict == ok ]] || { printf '# status %s, expected %s; wanted: %s\n' "$got" "$status" "${lines[*]}"; sed 's/^/# /' /tmp/out; } >&3
}

finish() {
    printf '# end\n' >&3
    exec 3>&-
    sync
    # Process 1: there is nobody to ask.
    echo o >/proc/sysrq-trigger
    sleep 10
}
