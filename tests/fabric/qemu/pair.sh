# shellcheck shell=bash
# One of two machines on one cable: NODE is 0 or 1. No bandwidth: it means nothing here, and a flood can make QEMU's
# socket network stand still.
add_rxe eth0 "10.9.0.$((NODE + 1))"

step() { # step NUMBER ARGUMENT...: as srun would start it on both
    local number=$1
    shift
    env SLURM_JOB_ID=1 SLURM_STEP_ID="$number" SLURM_STEP_NUM_NODES=2 SLURM_NODEID="$NODE" SLURM_LOCALID=0 \
        SLURM_STEP_NODELIST=10.9.0.1,10.9.0.2 NO_COLOR=1 "$TOOL" check --timeout 60 "$@"
}

# A program on libdist that makes its world, as rdma=require would start it (tests/fabric/world.c).
world() { # world PORT [VARIABLE=VALUE...]
    local port=$1
    shift
    env RANK="$NODE" WORLD_SIZE=2 MASTER_ADDR=10.9.0.1 MASTER_PORT="$port" AMLDIST_NODE_NAME="node$((NODE + 1))" \
        AMLDIST_TRACE_DIR=off AMLDIST_RDMA=require "$@" "$WORLD"
}

if ((NODE == 0)); then
    expect 'two nodes write to each other' 0 'pass +ib.pair' 'pass +ib.loopback' '2 nodes: pass' -- step 0 --policy require
    expect 'a program makes its world when both nodes have written' 0 '^0 - - ' -- world 23001
    expect 'and does not, with a wrong GID index at the other end' 1 'rdma=require .*node2' -- world 23002
    expect 'a node with a wrong GID index cannot be written to: both ends are named' 1 'fail +ib.pair' -- step 2 --policy require
else
    expect 'the second node hears the same verdict' 0 -- step 0 --policy require
    expect 'the second rank has its world too' 0 '^0 - - ' -- world 23001
    expect 'and hears why not' 1 'rdma=require .*node2' -- world 23002 NCCL_IB_GID_INDEX=9
    NCCL_IB_GID_INDEX=9 expect 'and so where it is the cause' 1 -- step 2 --policy require
fi
# shellcheck source=tests/fabric/qemu/slurm.sh
[[ -z $SLURM ]] || source "$SLURM"
finish
