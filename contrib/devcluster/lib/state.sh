# shellcheck shell=bash
# Where a cluster keeps its files, how its processes are recognised, and its lock.

# Root keeps state where every namespace sees it; others can only have a single-host cluster,
# where all users share one /tmp.
if [[ -n ${DEVCLUSTER_STATE-} ]]; then STATE_ROOT=$DEVCLUSTER_STATE
elif [[ $EUID -eq 0 ]]; then STATE_ROOT=/run/aml-devcluster
else STATE_ROOT=/tmp/aml-devcluster-$EUID
fi
readonly STATE_ROOT

NAME='' STATE='' TAG='' LOCK_FD=''

use_cluster() {
    NAME=${1:-aml}
    check_cluster_name "$NAME"
    STATE=$STATE_ROOT/$NAME
    # Every process that we start has this in its environment, so that it can be found whatever
    # happened to the script. The root folder's inode tells a chroot's cluster from the host's.
    TAG=$NAME@$(stat -c %d:%i /)${DEVCLUSTER_STATE+:$STATE_ROOT}
}

need_cluster() {
    use_cluster "${1-}"
    [[ -f $STATE/params ]] || fail "no cluster '$NAME' is running (devcluster start --name $NAME)"
    load_params
}

# Process ids of the host are meaningless inside a machine of the cluster.
refuse_inside() {
    [[ ${DEVCLUSTER-} != "$TAG" ]] || fail "this is a shell inside cluster '$NAME': run it outside"
}

cluster_names() {
    local folder
    for folder in "$STATE_ROOT"/*/; do
        if [[ -d $folder ]]; then basename "$folder"; fi
    done
}

# One change at a time per cluster name. The descriptor must not reach a daemon: see `detached`.
lock_cluster() {
    mkdir -p "$STATE_ROOT"
    local file=$STATE_ROOT/.lock-$NAME
    while :; do
        exec {LOCK_FD}>>"$file"
        if ! flock -n "$LOCK_FD"; then
            say "waiting for another devcluster command on '$NAME'"
            flock -w 120 "$LOCK_FD" || fail "cluster '$NAME' is still locked after 120 s"
        fi
        # The previous holder may have removed the file that we have locked.
        if [[ $file -ef /proc/self/fd/$LOCK_FD ]]; then return; fi
        exec {LOCK_FD}>&-
        mkdir -p "$STATE_ROOT"
    done
}

remove_lock() {
    rm -f "$STATE_ROOT/.lock-$NAME"
    rmdir "$STATE_ROOT" 2>/dev/null || true  # another cluster uses it
}

# Runs a command without our lock, terminal input or environment, marked as the cluster's.
detached() {
    exec env -i PATH="$DAEMON_PATH" LANG=C.UTF-8 DEVCLUSTER="$TAG" "$@" </dev/null {LOCK_FD}>&-
}
readonly DAEMON_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

tagged_pids() {
    grep -lszxF -- "DEVCLUSTER=$TAG" /proc/[0-9]*/environ | cut -d/ -f3 || true  # grep: no process, or one has just ended
}

# is_tagged PID: whether we have started it. While a process is in exec, its environment looks empty.
is_tagged() {
    local try entry
    local -a entries
    for ((try = 0; try < 100; try++)); do
        mapfile -d '' -t entries 2>/dev/null <"/proc/$1/environ" || return 1
        # A process that has ended has no program either.
        if [[ ${#entries[@]} -gt 0 || ! -e /proc/$1/exe ]]; then break; fi
        sleep 0.02
    done
    for entry in "${entries[@]}"; do
        [[ $entry != "DEVCLUSTER=$TAG" ]] || return 0
    done
    return 1
}

# wait_until SECONDS COMMAND...: polls, after some two seconds less often, because asking slurmctld costs as much as a start
wait_until() {
    local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000)) round; shift
    for ((round = 0; ; round++)); do
        ! "$@" || return 0
        ((${EPOCHREALTIME/[.,]/} < end)) || return 1
        if ((round < 40)); then sleep 0.05; else sleep 0.5; fi
    done
}

# wait_for_start COMMAND...: as long as a daemon or a machine may take on a machine where others compute
wait_for_start() { wait_until 60 "$@"; }
