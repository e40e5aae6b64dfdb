#!/bin/bash
# Puts aml-dist's prolog and epilog beside healthagent's. It does so for each of prolog.conf and epilog.conf that files/ holds: the
# settings of contrib/health/prolog and contrib/health/epilog. CycleCloud runs it as root on each node; tried again it does nothing.
#
# CycleCloud's slurm.conf runs /etc/slurm/prolog.d/* and epilog.d/*, links to folders that the cluster shares, from z to 0: first
# 90-imex_*.sh, then ours, then healthagent's 10-health_epilog.sh. HealthCheckProgram stays healthagent's (docs/cloud.md).
set -euo pipefail

files=${CYCLECLOUD_SPEC_PATH:-$(cd "$(dirname "$0")/.." && pwd)}/files
[[ ! -d $files ]] && files=${CYCLECLOUD_SPEC_PATH:-.}/cluster-init/files
samples=${AML_DIST_SAMPLES:-/usr/share/doc/aml-dist/contrib/health}
slurm=${AML_DIST_SLURM_CONF:-/etc/slurm}
settings=${AML_DIST_SETTINGS:-/etc/aml-dist}

for name in prolog epilog; do
    [[ -f $files/$name.conf ]] || continue
    install -D -m 0644 "$files/$name.conf" "$settings/$name.conf"
    target=$slurm/$name.d/50-aml-dist.sh
    [[ -w $slurm/$name.d ]] || continue  # a shared folder that only the scheduler may write
    # Slurm runs whatever the folder holds, but no hidden file.
    install -m 0755 "$samples/$name" "$slurm/$name.d/.50-aml-dist.$HOSTNAME"
    mv -f "$slurm/$name.d/.50-aml-dist.$HOSTNAME" "$target"
    printf 'aml-dist: %s\n' "$target"
done
