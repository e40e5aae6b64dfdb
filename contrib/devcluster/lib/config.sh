# shellcheck shell=bash
# slurm.conf and the files beside it.

write_slurm_conf() {
    {   echo "# Written by devcluster for cluster '$NAME'; changed by 'devcluster start --conf Key=Value'."
        base_settings | override_settings
        single_host || echo 'SlurmctldHost=login'
        ! single_host || echo "SlurmctldHost=$(short_hostname)(127.0.0.1)"
        node_lines
        extra_lines '(partitionname)' | grep -qi '^PartitionName=main[[:space:]]*' ||
            echo 'PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES'
        extra_lines "$LINE_KEYS"
    } >"$STATE/slurm/slurm.conf.new"
    mv "$STATE/slurm/slurm.conf.new" "$STATE/slurm/slurm.conf"
}

short_hostname() { local name; read -r name </proc/sys/kernel/hostname; echo "${name%%.*}"; }

# Times are short because tests wait for them; cred_expire is also how long a requeued job waits,
# bf_interval how long a heterogeneous one does.
base_settings() {
    local user slurmd_port=$((P[ports] + 1))
    user=$(id -un)
    cat <<CONF
ClusterName=$NAME
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=${P[ports]}
SlurmdPort=$slurmd_port
AuthType=auth/munge
AuthInfo=socket=$STATE/munge/socket,cred_expire=10
StateSaveLocation=$STATE/ctl
SlurmctldPidFile=$STATE/ctl/slurmctld.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdSpoolDir=$STATE/spool/%n
SlurmdPidFile=$STATE/spool/%n/slurmd.pid
SlurmdLogFile=$STATE/log/%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
MpiDefault=none
JobCompType=jobcomp/filetxt
JobCompLoc=$STATE/log/jobcomp.log
PropagateResourceLimitsExcept=MEMLOCK
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=2
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_min_interval=100000
CONF
    if single_host; then echo "TmpFS=$STATE/tmp/%n"; fi
    if configless; then echo 'SlurmctldParameters=enable_configless'
    else echo "PlugStackConfig=$STATE/slurm/plugstack.conf"
    fi
    if ipv6_only; then echo 'CommunicationParameters=EnableIPv6,DisableIPv4'; fi
    if uses_slurms_key; then echo 'CredType=auth/slurm'; fi
    if accounting; then accounting_settings; fi
    if [[ -n ${P[gres]} ]]; then echo "GresTypes=${P[gres]%%:*}"; fi
    if limits_memory; then echo "FirstJobId=$(first_job_id)"; fi
}

limits_memory() { extra_lines TaskPlugin | grep -q task/cgroup; }

# The groups that limit a job's memory bear its number, below the node's name: clusters beside this one must count elsewhere.
first_job_id() {
    local third=${P[subnet]%.*/*}
    third=${third##*.}
    echo $((${third:-0} * 10000 + 1))
}

# These keys name an object, so they may occur several times; any other key occurs once.
readonly LINE_KEYS='(nodename|nodeset|partitionname|downnodes|frontendname|include|slurmctldhost)'
readonly TOPOLOGY_KEYS='(switchname|blockname|blocksizes)'  # lines of topology.conf

# Nothing where --conf has no such line.
extra_lines() { printf '%s\n' "${P[conf]}" | grep -iE "^$1[=[:space:]]" || true; }

override_settings() {
    local line key taken='|'
    while IFS= read -r line; do
        if [[ -z $line || ${line,,} =~ ^(${LINE_KEYS}|$TOPOLOGY_KEYS)[=[:space:]] ]]; then continue; fi
        key=${line%%=*} key=${key,,}
        taken+="$key|"
        printf '%s\n' "$line"
    done <<<"${P[conf]}"
    while IFS= read -r line; do
        key=${line%%=*} key=${key,,}
        [[ $taken == *"|$key|"* ]] || printf '%s\n' "$line"
    done
}

node_lines() {
    local node what port
    what="CPUs=${P[cpus]} Boards=1 SocketsPerBoard=1 CoresPerSocket=${P[cpus]} ThreadsPerCore=1"
    what+=" RealMemory=${P[memory]} State=UNKNOWN"
    if [[ -n ${P[gres]} ]]; then what+=" Gres=${P[gres]}"; fi
    for node in ${P[names]}; do
        if single_host; then
            port=$((P[ports] + $(node_index "$node")))
            echo "NodeName=$node NodeHostname=$(short_hostname) NodeAddr=127.0.0.1 Port=$port $what"
        else echo "NodeName=$node $what"
        fi
    done
}

write_cgroup_conf() {
    # Unless --conf asks for them nothing here uses cgroups. Older releases cannot switch them off; this setting needs the
    # least.
    if limits_memory; then printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\n'
    elif tracks_by_cgroup; then echo 'CgroupPlugin=cgroup/v1'
    elif at_least 23.11; then echo 'CgroupPlugin=disabled'; else echo 'CgroupPlugin=cgroup/v1'
    fi >"$STATE/slurm/cgroup.conf"
}

tracks_by_cgroup() { extra_lines ProctrackType | grep -q proctrack/cgroup; }

# Under --conf AuthType=auth/slurm (23.11 on) all daemons share a key, and clients ask the daemon of their machine.
uses_slurms_key() { extra_lines AuthType | grep -q auth/slurm; }

write_slurms_key() {
    if uses_slurms_key; then (umask 077; head -c 1024 /dev/urandom >"$STATE/slurm/slurm.key"); fi
}

# By default mpi/pmix uses a tree for fences without data, which does not connect the nodes if a step has fewer than
# TreeWidth: Open MPI's MPI_Init is then no barrier, and a few launches in a hundred die in it.
write_mpi_conf() {
    if has_pmix; then echo 'PMIxCollFence=ring' >"$STATE/slurm/mpi.conf"; fi
}

# Slurm wants device files, and takes their number from the name; any device will do.
write_gres_conf() {
    local kind=${P[gres]%%:*} count=${P[gres]##*:} i
    [[ -n ${P[gres]} ]] || return 0
    mkdir -p "$STATE/dev"
    for ((i = 0; i < count; i++)); do ln -sfn /dev/null "$STATE/dev/$kind$i"; done
    echo "NodeName=${P[names]// /,} Name=$kind Count=$count File=$STATE/dev/${kind}[0-$((count - 1))]" >"$STATE/slurm/gres.conf"
}

# With --conf TopologyPlugin=topology/tree (or block) its lines are given as --conf SwitchName=... (BlockName=...).
write_topology_conf() {
    extra_lines "$TOPOLOGY_KEYS" >"$STATE/slurm/topology.conf"
}

write_config() {
    write_slurm_conf
    write_topology_conf
    write_cgroup_conf
    write_slurms_key
    write_mpi_conf
    write_gres_conf
    write_plugstack
}

# Renamed into place, so that readers see either the old or the new file.
write_plugstack() {
    {   if [[ -n ${P[plugin]} ]]; then
            echo "${P[plugin_mode]} $(visible_plugin)${P[plugin_args]:+ ${P[plugin_args]}}"
        fi
        if [[ -n ${P[plugstack]} ]]; then cat -- "${P[plugstack]}"; fi
    } >"$STATE/slurm/plugstack.conf.new"
    mv "$STATE/slurm/plugstack.conf.new" "$STATE/slurm/plugstack.conf"
}

# The machines have their own /tmp and /dev/shm: a plugin from there must be copied.
visible_plugin() {
    local copy
    if single_host || [[ ${P[plugin]} != /tmp/* && ${P[plugin]} != /dev/shm/* ]]; then
        echo "${P[plugin]}"; return
    fi
    copy=$STATE/plugin/${P[plugin]##*/}
    mkdir -p "$STATE/plugin"
    cp -- "${P[plugin]}" "$copy.new"
    mv "$copy.new" "$copy"
    echo "$copy"
}
