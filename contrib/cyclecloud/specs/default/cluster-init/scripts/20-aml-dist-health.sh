#!/bin/bash
# Puts aml-dist's prolog and epilog beside healthagent's. It does so for each of prolog.conf and epilog.conf that files/ holds: the
# settings of contrib/health/prolog and contrib/health/epilog. With health.conf a timer runs contrib/health/aml-dist-health, which drains
# and resumes. CycleCloud runs it as root on each node; tried again it does nothing.
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

if [[ -f $files/health.conf ]]; then
    install -D -m 0644 "$files/health.conf" "$settings/health.conf"
    units=${AML_DIST_UNITS:-/etc/systemd/system}
    for unit in service timer; do
        install -D -m 0644 "$samples/aml-dist-health.$unit" "$units/aml-dist-health.$unit"
    done
    if command -v slurmd >/dev/null && [[ -d /run/systemd/system ]]; then  # compute nodes alone
        systemctl daemon-reload
        systemctl enable --now aml-dist-health.timer
    fi
    printf 'aml-dist: %s\n' "$units/aml-dist-health.timer"
fi
