#!/bin/bash
# Process 1 of one machine of the cluster (login or a node), in new namespaces. Gives the machine
# its own name, /tmp, /dev/shm, /proc, /sys and /etc files, then only waits: the kernel kills
# everything in the machine with it.
set -eu
# shellcheck source=SCRIPTDIR/enter-root.sh
. "${BASH_SOURCE[0]%/*}/enter-root.sh"
state=$1 name=$2 root=$3 configless=$4
me=$state/machines/$name

# /proc is still the host's here, so this is our process id on the host.
read -r outside_pid _ </proc/self/stat

printf '%s\n' "$name" >/proc/sys/kernel/hostname
mount --make-rprivate / 2>/dev/null || mount --make-rprivate /proc
[[ -z $root ]] || enter_root "$root"

mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmp /tmp
[[ -d /dev/shm ]] && mount -t tmpfs -o mode=1777 shm /dev/shm

# A fresh sysfs shows this machine's network devices instead of the host's; it hides the cgroup
# mounts, which slurmd wants to see.
new_sysfs() {
    mount --rbind /sys/fs/cgroup "$me/mnt"
    mount -t sysfs sysfs /sys
    mount --move "$me/mnt" /sys/fs/cgroup
}
[[ ! -d /sys/fs/cgroup ]] || new_sysfs

# Every node's slurmd makes the same groups: each machine has a tree of its own. (teardown.sh removes it.)
own_cgroups() {
    local tree own file
    for tree in /sys/fs/cgroup/*; do
        [[ ! -L $tree && -w $tree/cgroup.procs ]] || continue
        own=$tree/aml-devcluster.${state##*/}.$name
        mkdir -p "$own"
        for file in cpuset.cpus cpuset.mems; do [[ ! -e $own/$file ]] || cat "$tree/$file" >"$own/$file"; done
        mount --bind "$own" "$tree"
    done
}
! grep -qi '^ProctrackType=proctrack/cgroup' "$state/slurm/slurm.conf" || own_cgroups

# Slurm's daemons answer their machine's clients at sockets there (auth/slurm).
own_sockets() {
    local folder
    for folder in /run/slurm /run/slurmctld; do
        mkdir -p "$folder"
        mount -t tmpfs -o mode=0755 slurm "$folder"
    done
}
[[ ! -e $state/slurm/slurm.key ]] || own_sockets

# A missing file cannot be mounted over, and the host's /etc must not be changed.
private_etc() {
    mount -t tmpfs -o mode=0755 etc "$me/mnt"
    mkdir "$me/mnt/upper" "$me/mnt/work"
    mount -t overlay -o "lowerdir=/etc,upperdir=$me/mnt/upper,workdir=$me/mnt/work" overlay /etc
    local file
    for file in "$@"; do [[ -e /etc/$file ]] || { rm -f "/etc/$file"; : >"/etc/$file"; }; done
}

own=(hosts hostname resolv.conf nsswitch.conf) shared=(passwd group shadow gshadow)
missing=()
for file in "${own[@]}" "${shared[@]}"; do [[ -e /etc/$file ]] || missing+=("$file"); done
[[ ${#missing[@]} -eq 0 ]] || private_etc "${missing[@]}"
for file in "${own[@]}"; do mount --bind "$me/$file" "/etc/$file"; done
for file in "${shared[@]}"; do mount --bind "$state/etc/$file" "/etc/$file"; done

# Debian testing's Open MPI 6 is set to the loopback interface alone, over which no two nodes reach each other.
parameters=/etc/openmpi/openmpi-mca-params.conf
if grep -qsE '^btl_tcp_if_include *= *lo *$' "$parameters"; then
    grep -vE '^btl_tcp_if_include *= *lo *$' "$parameters" >"$me/open-mpi.conf" || true  # grep fails where no other line is left
    mount --bind "$me/open-mpi.conf" "$parameters"
fi

[[ $name == login ]] || mount --bind "$me/munge" "$state/munge"

# The nodes of a configless cluster have no configuration but what slurmd fetches into /run/slurm. It does not yet
# know then where munged listens.
if [[ -n $configless && $name != login ]]; then
    mkdir -p /run/slurm /run/munge
    mount -t tmpfs -o mode=0755 slurm /run/slurm
    mount -t tmpfs -o mode=0755 munge /run/munge
    ln -s "$state/munge/socket" /run/munge/munge.socket.2
    [[ ! -d /etc/slurm ]] || mount -t tmpfs -o mode=0755 none /etc/slurm
elif [[ -d /etc/slurm ]]; then mount --bind "$state/slurm" /etc/slurm
fi

printf '%s\n' "$outside_pid" >"$me/pid.new"
mv "$me/pid.new" "$me/pid"
# Orphans become our children; with SIGCHLD ignored the kernel reaps them.
exec env --ignore-signal=CHLD sleep infinity
