# shellcheck shell=bash
# What must be installed, and which Debian package has it.

PREREQUISITES='slurmctld:slurmctld slurmd:slurmd srun:slurm-client scontrol:slurm-client
    sinfo:slurm-client munged:munge flock:util-linux setpriv:util-linux setsid:util-linux
    mount:mount umount:mount ip:iproute2 unshare:util-linux nsenter:util-linux'

check_prerequisites() {
    local pair missing='' packages=''
    PATH=$PATH:/usr/sbin:/sbin
    for pair in $PREREQUISITES; do
        command -v "${pair%%:*}" >/dev/null && continue
        missing+=" ${pair%%:*}"
        [[ " $packages " == *" ${pair#*:} "* ]] || packages+=" ${pair#*:}"
    done
    [[ -z $missing ]] || fail "not installed:$missing"$'\n'"  apt-get install --no-install-recommends$packages"
}

slurm_version() { slurmctld -V | cut -d' ' -f2; }

# at_least 23.11: this Slurm is that release or newer
at_least() { [[ $(printf '%s\n' "$1" "$(slurm_version)" | sort -V | head -n1) == "$1" ]]; }
