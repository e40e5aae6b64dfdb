# shellcheck shell=bash

help_logs() {
    cat <<'HELP'
devcluster logs [--name NAME] [NODE|ctl|munge] [--follow]
devcluster conf [--name NAME]

logs prints the log of one daemon, or the last lines of all. conf prints the path of slurm.conf.
HELP
}

cmd_logs() {
    local file
    parse_options_anywhere 'name= follow' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_logs; return; fi
    need_cluster "${OPT[name]-}"
    local -a files=("$STATE/log/slurmctld.log" "$STATE"/log/munged.log)
    case ${REST[0]-} in
    '') for file in ${P[names]}; do files+=("$STATE/log/$file.log"); done ;;
    ctl) files=("$STATE/log/slurmctld.log") ;;
    munge) files=("$STATE/log/munged.log") ;;
    *) is_node "${REST[0]}" || usage_error "logs: '${REST[0]}' is not a node, ctl or munge"
       files=("$STATE/log/${REST[0]}.log") ;;
    esac
    if [[ -n ${OPT[follow]-} ]]; then exec tail -n 20 -F -- "${files[@]}"; fi
    if [[ ${#files[@]} -eq 1 ]]; then cat -- "${files[@]}"; else tail -n 20 -- "${files[@]}"; fi
}

cmd_conf() {
    parse_options 'name=' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_logs; return; fi
    need_cluster "${OPT[name]-}"
    echo "$STATE/slurm/slurm.conf"
}
