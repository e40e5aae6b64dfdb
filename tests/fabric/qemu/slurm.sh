# shellcheck shell=bash
# The same two machines as nodes of a Slurm with the plugin, with two rails: what the writes before a step's tasks find
# on a wire that loses. The program is a plain one of Python, which knows nothing of aml-dist.
ip link set eth1 up
add_rxe eth1 "10.9.1.$((NODE + 1))" rxe1

readonly slurm=/run/slurm
mkdir -p $slurm/{state,spool}
printf '10.9.0.1 guest0\n10.9.0.2 guest1\n' >>/etc/hosts
echo "guest$NODE" >/proc/sys/kernel/hostname
cat >$slurm/slurm.conf <<CONF
ClusterName=qemu
SlurmctldHost=guest0(10.9.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket
StateSaveLocation=$slurm/state
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
SlurmdSpoolDir=$slurm/spool
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
MpiDefault=none
PropagateResourceLimitsExcept=MEMLOCK
PlugStackConfig=$slurm/plugstack.conf
ReturnToService=2
NodeName=guest[0-1] NodeAddr=10.9.0.[1-2] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
CONF
# shellcheck disable=SC2153 # of tests/fabric/qemu/run
printf 'required %s\n' "$PLUGIN" >$slurm/plugstack.conf
cat >$slurm/train.py <<'PYTHON'
import os
open("/run/slurm/ran", "w").close()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ.get("NCCL_IB_HCA", os.environ.get("NCCL_IB_DISABLE")))
PYTHON
export SLURM_CONF=$slurm/slurm.conf
head -c 1024 /dev/zero | tr '\0' 'k' >/run/munge.key  # of a cable that nobody else is on
chmod 600 /run/munge.key
munged --force --key-file=/run/munge.key --socket=/run/munge.socket --pid-file=/run/munge.pid --seed-file=/run/munge.seed \
    --log-file=/run/munge.log --num-threads=1
ulimit -l unlimited
# Nothing here uses control groups. Older releases cannot switch them off; this setting needs the least.
mount -t tmpfs none /sys/fs/cgroup
groups=disabled
[[ $(printf '%s\n23.11\n' "$(slurmd -V | awk '{print $NF}')" | sort -V | head -n1) == 23.11 ]] || groups=cgroup/v1
echo "CgroupPlugin=$groups" >$slurm/cgroup.conf

if ((NODE == 1)); then
    slurmd -D >/results/slurmd 2>&1  # until guest0 shuts Slurm down
    finish
fi

slurmctld >/results/slurmctld 2>&1
slurmd >/results/slurmd 2>&1
for ((i = 0; i < 60; ++i)); do
    [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 2 ]] && break
    sleep 1
done

train() { # train KEYS: on both nodes
    rm -f $slurm/ran
    timeout 100 srun -N2 -n2 --aml-dist="pytorch,$1" /usr/bin/python3 $slurm/train.py
}

# lose INTERFACE PERCENT: of what goes out to RoCE's port; Slurm's own traffic is left alone
lose() {
    tc qdisc add dev "$1" root handle 1: prio bands 4
    tc qdisc add dev "$1" parent 1:4 handle 40: netem loss "$2%"
    tc filter add dev "$1" parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:4
}
heal() { tc qdisc del dev "$1" root; }

readonly both='rank 0 of 2 =rxe0:1,rxe1:1'
expect 'a plain program starts when its nodes have written to each other over both rails' 0 "$both" -- train rdma=require
lose eth0 2
lose eth1 2
expect 'and on a wire that loses 2 of 100 packets: reliable connections repeat them' 0 "$both" -- train rdma=require
heal eth0
heal eth1
lose eth0 60
expect 'but not where most are lost: seven attempts do not carry the data' 1 \
    'rdma=require failed between nodes: ib.pair: guest[01] -> guest[01] over rxe0:1' -- train rdma=require
heal eth0
lose eth0 100
lose eth1 100
expect 'with UDP 4791 dropped the ports are active, and the step is refused before its program starts' 1 \
    'rdma=require failed between nodes: ib.pair: guest[01] -> guest[01] over rxe[01]:1' -- train rdma=require
expect 'nothing of the program has run' 1 -- test -e $slurm/ran
heal eth0
expect 'one rail dead: it is named, with both ends' 1 \
    'rdma=require failed between nodes: ib.pair: guest[01] -> guest[01] over rxe1:1' -- train rdma=require
expect 'under prefer the step uses sockets, and says why' 0 'rank 0 of 2 1$' 'rdma=prefer: the whole step uses sockets.*rxe1' \
    -- train rdma=prefer,rdma_pairs=ring
heal eth1
expect 'and starts again when the wire is well' 0 "$both" -- train rdma=require
expect 'as the file says that the program leaves' 0 -- test -e $slurm/ran
tail -n 40 /run/munge.log >/results/munged 2>/dev/null
scontrol shutdown
finish
