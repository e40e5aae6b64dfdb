# shellcheck shell=bash
# What slurmctld thinks of the nodes.

# "NODE STATE" lines; nothing when slurmctld does not answer.
# No output: slurmctld does not answer.
node_states() {
    daemon_alive slurmctld || return 0
    enter login env -i PATH="$DAEMON_PATH" SLURM_CONF="$STATE/slurm/slurm.conf" \
        timeout 10 sinfo -h -N -o '%N %T' 2>/dev/null | sort -u || true  # slurmctld may not answer yet
}

# Fills NOT_READY with the nodes (of those named) that cannot run a job.
NOT_READY=''
nodes_ready() {
    local node state
    local -A seen=()
    while read -r node state; do seen[$node]=$state; done < <(node_states)
    NOT_READY=''
    for node in "$@"; do
        state=${seen[$node]-unknown}
        # slurmctld notices only later that a slurmd is dead.
        daemon_alive "$node" || state='no slurmd'
        case $state in idle|mixed|allocated|completing) ;; *) NOT_READY+=" $node(${state// /-})" ;; esac
    done
    [[ -z $NOT_READY ]]
}

any_slurmd_failed() { # any_slurmd_failed NODE...
    local node
    for node in "$@"; do [[ ! -e $STATE/spool/$node/failed ]] || return 0; done
    return 1
}

ready_or_failed() { nodes_ready "$@" || any_slurmd_failed "$@"; }

# wait_for_nodes NODE...
wait_for_nodes() {
    local item
    if wait_until 120 ready_or_failed "$@" && [[ -z $NOT_READY ]]; then return; fi
    for item in $NOT_READY; do
        say "node ${item%(*} is not idle, but (${item#*(}"
        show_tail "$STATE/log/${item%(*}.out" 5
        show_tail "$STATE/log/${item%(*}.log"
    done
    return 1
}
