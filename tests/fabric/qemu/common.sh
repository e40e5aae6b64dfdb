# shellcheck shell=bash
# What every guest begins with. TOOL names aml-dist; results go to /results/tap.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C HOME=/root
exec 3>>/results/tap
# /tmp stays as it is, since a checkout may lie there; what is written goes to the overlay, in memory.
mount -t tmpfs run /run
readonly output=/run/aml-dist-output
mkdir -p /dev/shm
ip link set lo up
echo guest >/proc/sys/kernel/hostname
for each in "$TOOL" "$WORLD"; do
    [[ -x $each ]] || printf 'not ok - the guest sees no %s: is the checkout on a file system of its own?\n' "$each" >&3
done

# add_rxe INTERFACE ADDRESS [DEVICE]: a soft-RoCE device, and time for its IPv4 GID
add_rxe() {
    local i device=${3:-rxe0}
    ip addr add "$2/24" dev "$1"
    ip link set "$1" up
    rdma link add "$device" type rxe netdev "$1"
    for ((i = 0; i < 100; ++i)); do
        grep -qs 'ffff:' "/sys/class/infiniband/$device"/ports/1/gids/* && break
        sleep 0.1
    done
    chmod 666 /dev/infiniband/uverbs*
}

# expect NAME STATUS 'LINE'... -- COMMAND...: exit status, and a line of the table for each extended regular expression
expect() {
    local name=$1 status=$2 got line
    shift 2
    local -a lines=()
    while [[ $1 != -- ]]; do lines+=("$1"); shift; done
    shift
    "$@" >$output 2>&1
    got=$?
    local verdict=ok
    [[ $got == "$status" ]] || verdict='not ok'
    for line in "${lines[@]}"; do grep -Eq -- "$line" $output || verdict='not ok'; done
    printf '%s - %s\n' "$verdict" "$name" >&3
    [[ $verdict == ok ]] || { printf '# status %s, expected %s; wanted: %s\n' "$got" "$status" "${lines[*]}"; sed 's/^/# /' $output; } >&3
}

finish() {
    printf '# end\n' >&3
    exec 3>&-
    sync
    # Process 1: there is nobody to ask.
    echo o >/proc/sysrq-trigger
    sleep 10
}
