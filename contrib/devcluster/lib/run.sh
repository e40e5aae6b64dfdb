# shellcheck shell=bash

help_run() {
    cat <<'HELP'
devcluster run [--name NAME] [--user USER] [--on NODE] [--env-clean] -- COMMAND...
devcluster shell [--name NAME] [--user USER] [--on NODE] [--env-clean]

  devcluster run -- srun -N4 hostname
  devcluster run --user alice -- sbatch --wrap 'srun hostname'
  devcluster run --on node3 -- ip addr
  devcluster shell --user bob

  --user USER     alice (uid 20001), bob (20002), or one of this host (root)
  --on NODE       a node instead of the login machine
  --env-clean     do not pass on this environment

Input, output, exit status, signals and arguments pass through unchanged. The working folder stays
the same if the machine has it (/tmp and /dev/shm are the machine's own).
HELP
}

cmd_run() {
    parse_options 'name= user= on= env-clean' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_run; return; fi
    [[ ${#REST[@]} -gt 0 ]] || usage_error 'run: no command (devcluster run -- COMMAND...)'
    need_cluster "${OPT[name]-}"
    run_in "${OPT[on]:-login}" "${OPT[user]:-root}" "${REST[@]}"
}

cmd_shell() {
    parse_options 'name= user= on= env-clean' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_run; return; fi
    [[ ${#REST[@]} -eq 0 ]] || usage_error "shell: unexpected '${REST[0]}'"
    need_cluster "${OPT[name]-}"
    run_in "${OPT[on]:-login}" "${OPT[user]:-root}" bash -i
}

run_in() {
    local machine=$1 user=$2 pid='' home uid gid folder; shift 2
    local -a as=() environment=() into=()
    [[ $machine == login ]] || is_node "$machine" || usage_error "cluster '$NAME' has no node '$machine'"
    read_user "$user"
    if ! single_host; then
        find_machine "$machine" || fail "machine '$machine' is gone (devcluster start)"
        pid=$MACHINE_PID
        into=(nsenter -t "$pid" -m -u -i -n -p --root --)
    fi
    if [[ $uid != "$EUID" ]]; then as=(--reuid="$uid" --regid="$gid" --init-groups); fi
    choose_environment "$machine"
    choose_folder
    # If the outer process is killed, the inner one gets a signal: nsenter forwards none.
    pass_signals setpriv --pdeathsig TERM "${into[@]}" setpriv --pdeathsig TERM "${as[@]}" \
        env -C "$folder" "${environment[@]}" "$@"
}

# Sets the user's uid, gid and home as the cluster knows them.
read_user() {
    local line name
    if single_host && [[ $EUID -ne 0 ]]; then
        [[ $1 == root || $1 == "$(id -un)" ]] || fail "only root can run a command as $1"
        uid=$EUID gid=$(id -g) home=$HOME; return
    fi
    if single_host; then
        line=$(getent passwd "$1") || true  # it fails where there is no such user
        IFS=: read -r name _ uid gid _ home _ <<<"$line"
        if [[ -n $name ]]; then return; fi
    else
        while IFS=: read -r name _ uid gid _ home _; do
            if [[ $name == "$1" ]]; then return; fi
        done <"$STATE/etc/passwd"
    fi
    fail "no user '$1' in cluster '$NAME'"
}

choose_environment() { # choose_environment MACHINE
    environment=(DEVCLUSTER="$TAG")
    if ! configless || [[ $1 == login ]]; then environment+=(SLURM_CONF="$STATE/slurm/slurm.conf"); fi
    # Open MPI takes ranks of one host for neighbours and looks for their shared memory under its
    # own node's folder; between slurmds of one host only TCP works.
    if single_host; then environment+=(OMPI_MCA_btl="${OMPI_MCA_btl:-self,tcp}"); fi
    if [[ -n ${OPT[env-clean]-} ]]; then
        environment=(-i PATH="$DAEMON_PATH" LANG="${LANG:-C.UTF-8}" TERM="${TERM:-dumb}" "${environment[@]}")
    fi
    if [[ -n ${OPT[env-clean]-} || $uid != "$EUID" ]]; then
        environment+=(HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash)
    fi
}

# Sets `folder`: the current one if it exists inside and the user may enter it, else the user's home.
choose_folder() {
    local -a look=("${into[@]}")
    if [[ ${#as[@]} -gt 0 ]]; then look+=(setpriv "${as[@]}"); fi
    if { single_host || [[ $PWD == / || /proc/$pid/root$PWD -ef $PWD ]]; } &&
        { [[ ${#as[@]} -eq 0 ]] || "${look[@]}" test -x "$PWD"; }; then folder=$PWD; return
    fi
    say "$PWD cannot be used on '$machine' by $user: starting in ${home:-/}"
    folder=${home:-/}
}

# With a terminal the command shares our process group and hears its keys by itself. Without one
# it gets its own group, and signals that reach us are forwarded.
pass_signals() {
    local signal child status got
    if { : </dev/tty; } 2>/dev/null; then exec "$@"; fi
    set +e  # the command's status is returned
    set -m
    "$@" <&0 &
    child=$!
    set +m
    exec 2>/dev/null   # bash would report how the command ended
    for signal in HUP INT QUIT TERM USR1 USR2; do
        # shellcheck disable=SC2064  # the signal and the child are known now
        trap "got=1; hand_on $signal $child" "$signal"
    done
    while got=0; wait "$child"; status=$?; ((got)); do :; done
    exit "$status"
}

hand_on() {
    local inner
    read -r inner _ <"/proc/$2/task/$2/children"
    if single_host; then inner=''; fi
    kill -s "$1" "${inner:-$2}"
}
