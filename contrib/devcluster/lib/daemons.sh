# shellcheck shell=bash
# munged, slurmctld and the slurmds: start, find, kill.

# daemon_pid munged|munged@NODE|slurmctld|NODE: its process id inside its machine, if it lives
daemon_pid() {
    local machine=login program=$1 file pid outside=''
    case $1 in
    munged) file=$STATE/munge/munged.pid ;;
    munged@*) machine=${1#munged@} program=munged; file=$(munge_home "$machine")/munged.pid ;;
    slurmctld) file=$STATE/ctl/slurmctld.pid ;;
    *) machine=$1 program=slurmd file=$STATE/spool/$1/slurmd.pid ;;
    esac
    read -r pid 2>/dev/null <"$file" || return 1
    if ! single_host; then outside=/proc/$(machine_pid "$machine")/root || return 1; fi
    grep -qszxF -- "DEVCLUSTER=$TAG" "$outside/proc/$pid/environ" &&
        [[ $(<"$outside/proc/$pid/comm") == "$program" ]] && echo "$pid"
}

# A single host has only one munged.
daemon_names() {
    local node
    echo munged slurmctld
    for node in ${P[names]}; do
        single_host || echo "munged@$node"
        echo "$node"
    done
}

daemon_alive() { [[ -n $(daemon_pid "$1") ]]; }

kill_daemon() {
    local pid machine=login
    pid=$(daemon_pid "$1") || return 0
    case $1 in munged|slurmctld) ;; *) machine=$1 ;; esac
    # shellcheck disable=SC2016  # the inner shell expands it
    enter "$machine" bash -c 'kill -KILL "$1"' kill "$pid" || true  # it may have ended meanwhile
    wait_until 5 daemon_gone "$1"
}

daemon_gone() { ! daemon_alive "$1"; }

# Every machine has its own munged, as on real clusters: where several slurmds share one, it calls a credential replayed when the
# second node reads it, and slurmd before 23.11 frees what munge says about that twice if two launches come at once.
munge_home() { if [[ $1 == login ]]; then echo "$STATE/munge"; else echo "$STATE/machines/$1/munge"; fi; }

# A machine sees its own munge_home as $STATE/munge, where slurm.conf looks for the socket.
start_munged() { # start_munged [NODE]
    local machine=${1:-login} home=$STATE/munge log=$STATE/log/${1:+$1.}munged
    rm -f "$(munge_home "$machine")"/{socket,socket.lock,munged.pid}
    (detached_in "$machine" munged --force --key-file="$home/key" --socket="$home/socket" --pid-file="$home/munged.pid" \
        --log-file="$log.log" --seed-file="$home/seed" >"$log.out" 2>&1) ||
        { say "munged did not start on $machine"; show_tail "$log.out"; show_tail "$log.log"; return 1; }
    wait_for_start test -S "$(munge_home "$machine")/socket" || { say "munged on $machine makes no socket"; return 1; }
}

write_munge_keys() {
    local home node
    mkdir -p "$STATE/munge"
    (umask 077; head -c 1024 /dev/urandom >"$STATE/munge/key")
    if single_host; then return; fi
    for home in $(for node in ${P[names]}; do munge_home "$node"; done); do
        mkdir -p "$home"
        cp -p "$STATE/munge/key" "$home/key"
    done
}

start_slurmctld() {
    rm -f "$STATE/ctl/slurmctld.pid"
    (detached_in login slurmctld -f "$STATE/slurm/slurm.conf" >"$STATE/log/slurmctld.out" 2>&1) &&
        wait_for_start daemon_alive slurmctld && return
    say 'slurmctld did not start'
    show_tail "$STATE/log/slurmctld.out"; show_tail "$STATE/log/slurmctld.log"
    return 1
}

# Returns at once; wait_for_nodes tells whether it worked: the file `failed` says that it did not.
start_slurmd() {
    local node=$1
    local -a where=(-f "$STATE/slurm/slurm.conf")
    if configless; then where=(--conf-server "login:${P[ports]}"); fi
    mkdir -p "$STATE/spool/$node" "$STATE/tmp/$node"
    rm -f "$STATE/spool/$node/"{slurmd.pid,failed}
    (   if single_host || daemon_alive "munged@$node" || start_munged "$node"; then
            (detached_in "$node" slurmd -N "$node" "${where[@]}" >"$STATE/log/$node.out" 2>&1) && exit
        fi
        { : >"$STATE/spool/$node/failed"; } 2>/dev/null || true) {LOCK_FD}>&- &  # the folder has gone where `start` was given up
}

# detached_in MACHINE COMMAND...: replaces the (sub)shell
detached_in() {
    local pid machine=$1; shift
    if single_host; then detached setsid "$@"; fi
    pid=$(machine_pid "$machine") || { say "machine '$machine' is gone"; exit 1; }
    detached setsid nsenter -t "$pid" -m -u -i -n -p --root -- "$@"
}
