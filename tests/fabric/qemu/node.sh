# shellcheck shell=bash
# One node with soft-RoCE over a veth pair, and what goes wrong there.
ip link add va type veth peer name vb
ip link set vb up
add_rxe va 10.9.0.1

check() { NO_COLOR=1 "$TOOL" check --timeout 60 "$@"; }

expect 'a healthy node: verbs list the device, memory is registered, a write to itself arrives' 0 \
    'pass +ib.provider' 'pass +ib.memlock .*registered' 'pass +ib.loopback .*rxe0.*arrived' 'pass +ib.gid .*RoCE v2' \
    -- check --policy require
expect 'the same as an ordinary user without limit' 0 'pass +ib.loopback' \
    -- prlimit --memlock=unlimited setpriv --reuid=1000 --regid=1000 --clear-groups "$TOOL" check --policy require --timeout 60
expect 'a memory limit of 64 KiB as an ordinary user: registration fails with ENOMEM' 1 \
    'fail +ib.memlock .*64 KiB.*Cannot allocate memory' \
    -- prlimit --memlock=65536:65536 setpriv --reuid=1000 --regid=1000 --clear-groups "$TOOL" check --policy require --timeout 60
expect 'root passes the same limit' 0 'pass +ib.memlock .*CAP_IPC_LOCK' \
    -- prlimit --memlock=65536:65536 "$TOOL" check --policy require --timeout 60
expect 'a wrong GID index: named, and the write fails' 1 'fail +ib.gid .*GID 9 is unused' 'fail +ib.loopback' \
    -- env NCCL_IB_GID_INDEX=9 "$TOOL" check --policy require --timeout 60
chmod 600 /dev/infiniband/uverbs0
expect 'a device node that an ordinary user may not open: the kernel says EACCES' 1 \
    'fail +ib.devnode .*Permission denied' 'fail +ib.loopback .*ibv_open_device' \
    -- prlimit --memlock=unlimited setpriv --reuid=1000 --regid=1000 --clear-groups "$TOOL" check --policy require --timeout 60
mv /dev/infiniband/uverbs0 /dev/infiniband/away
expect 'a device node that is not there' 1 'fail +ib.devnode .*No such file' 'fail +ib.provider' \
    -- check --policy require
mv /dev/infiniband/away /dev/infiniband/uverbs0
ip link set va down
expect 'the link down: state and physical state' 1 'fail +ib.state .*1: DOWN, 3: Disabled' 'fail +ib.loopback' \
    -- check --policy require
ip link set va up
sleep 1
expect 'and up again' 0 'pass +ib.state' 'pass +ib.loopback' -- check --policy require
rdma link delete rxe0
expect 'no device under require is a failure' 1 'fail +ib.sysfs' -- check --policy require
expect 'and without a policy nothing to verify' 3 'skip +ib.sysfs' -- check
finish
