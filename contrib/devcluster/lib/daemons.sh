# shellcheck shell=bash
# munged, slurmctld and the slurmds: start, find, kill.

# daemon_pid munged|slurmctld|NODE: its process id inside its machine, if it lives
daemon_pid() {
    local machine=login program=$1 file pid outside=''
    case $1 in
    munged) file=$STATE/munge/munged.pid ;;
    slurmctld) file=$STATE/ctl/slurmctld.pid ;;
    *) machine=$1 program=slurmd file=$STATE/spool/$1/slurmd.pid ;;
    esac
    read -r pid 2>/dev/null <"$file" || return 1
    if ! single_host; then outside=/proc/$(machine_pid "$machine")/root || return 1; fi
    grep -qszxF -- "DEVCLUSTER=$TAG" "$outside/proc/$pid/environ" &&
        [[ $(<"$outside/proc/$pid/comm") == "$program" ]] && echo "$pid"
}

daemon_alive() { [[ -n $(daemon_pid "$1") ]]; }

kill_daemon() {
    local pid machine=login
    pid=$(daemon_pid "$1") || return 0
    case $1 in munged|slurmctld) ;; *) machine=$1 ;; esac
    # shellcheck disable=SC2016
    enter "$machine" bash -c 'kill -KILL "$1"' kill "$pid" || true
    wait_until 5 daemon_gone "$1"
}

daemon_gone() { ! daemon_alive "$1"; }

start_munged() {
    local home=$STATE/munge
    mkdir -p "$home"
    if [[ ! -f $home/key ]]; then
        (umask 077; head -c 1024 /dev/urandom >"$home/key")
    fi
    rm -f "$home/socket" "$home/socket.lock" "$home/munged.pid"
    (detached_in login munged --force --key-file="$home/key" --socket="$home/socket" --pid-file="$home/munged.pid" \
        --log-file="$STATE/log/munged.log" --seed-file="$home/seed" >"$STATE/log/munged.out" 2>&1) ||
        { say 'munged does not start'; show_tail "$STATE/log/munged.out"; show_tail "$STATE/log/munged.log"; return 1; }
    wait_until 10 test -S "$home/socket"
}

start_slurmctld() {
    rm -f "$STATE/ctl/slurmctld.pid"
    (detached_in login slurmctld -f "$STATE/slurm/slurm.conf" >"$STATE/log/slurmctld.out" 2>&1) &&
        wait_until 10 daemon_alive slurmctld && return
    say 'slurmctld does not start'
    show_tail "$STATE/log/slurmctld.out"; show_tail "$STATE/log/slurmctld.log"
    return 1
}

# Returns at once; wait_for_nodes tells whether it worked.
start_slurmd() {
    local node=$1
    local -a where=(-f "$STATE/slurm/slurm.conf")
    if configless; then where=(--conf-server "login:${P[ports]}"); fi
    mkdir -p "$STATE/spool/$node" "$STATE/tmp/$node"
    rm -f "$STATE/spool/$node/slurmd.pid"
    (detached_in "$node" slurmd -N "$node" "${where[@]}" >"$STATE/log/$node.out" 2>&1) &
}

# detached_in MACHINE COMMAND...: replaces the (sub)shell
detached_in() {
    local pid machine=$1; shift
    if single_host; then detached setsid "$@"; fi
    pid=$(machine_pid "$machine") || { say "machine '$machine' is gone"; exit 1; }
    detached setsid nsenter -t "$pid" -m -u -i -n -p --root -- "$@"
}
