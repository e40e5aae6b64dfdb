# shellcheck shell=bash
# Removes every trace of a cluster, whatever state it is in.

# Killing a machine's process 1 makes the kernel kill everything in the machine, and its network
# and mounts go with it. On a single host the jobs' processes must be found by descent.
kill_everything() {
    local round pids pid
    for ((round = 0; round < 200; round++)); do
        pids=$(tagged_pids; stepd_pids)
        # A bare `return` in a trap gives the status from before the trap.
        if [[ -z $pids ]]; then return 0; fi
        for pid in $pids; do
            # The parent of a machine's process 1 reaps it and then ends by itself.
            if ((round < 20)) && is_unshare "$pid"; then kill_descendants "$pid"; continue; fi
            kill_descendants "$pid"
            kill -KILL "$pid" 2>/dev/null || true  # it may have ended
        done
        sleep 0.03
    done
    say "these processes did not end: ${pids//$'\n'/ }"
    return 1
}

# slurmstepd writes its title over its environment; the path of slurm.conf is still there.
stepd_pids() {
    local _ pid comm
    while IFS=/ read -r _ _ pid _; do
        read -r comm 2>/dev/null <"/proc/$pid/comm" || continue
        if [[ $comm == slurmstepd && /proc/$pid/root -ef / ]]; then echo "$pid"; fi
    done < <(grep -lszxF -- "SLURM_CONF=$STATE/slurm/slurm.conf" /proc/[0-9]*/environ)
}

is_unshare() { local comm; read -r comm 2>/dev/null <"/proc/$1/comm" && [[ $comm == unshare ]]; }

kill_descendants() {
    local child
    local -a children=()
    read -ra children -d '' < <(cat "/proc/$1/task/"*/children 2>/dev/null) || true  # read fails at the end of its input
    for child in "${children[@]}"; do
        kill_descendants "$child"
        kill -KILL "$child" 2>/dev/null || true  # it may have ended
    done
}

teardown() {
    kill_everything || return 1
    find /sys/fs/cgroup/*/"aml-devcluster.$NAME".* -depth -type d -exec rmdir {} + 2>/dev/null || true  # most machines have no such groups
    rm -rf --one-file-system -- "$STATE" || return 1
    remove_lock
}
