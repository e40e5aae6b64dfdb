# shellcheck shell=bash

help_stop() {
    cat <<'HELP'
devcluster stop [--name NAME | --all]

  devcluster stop                 ends cluster "aml": processes, namespaces, files
  devcluster stop --all           every cluster of this machine

Works after a crash too. Exit status 0 also if nothing runs.
HELP
}

cmd_stop() {
    local name
    parse_options 'name= all' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_stop; return; fi
    [[ ${#REST[@]} -eq 0 ]] || usage_error "stop: unexpected '${REST[0]}'"
    if [[ -z ${OPT[all]-} ]]; then stop_one "${OPT[name]-}"; return; fi
    for name in $(cluster_names); do stop_one "$name"; done
}

stop_one() {
    use_cluster "$1"
    refuse_inside
    if [[ ! -d $STATE && ! -e $STATE_ROOT/.lock-$NAME && -z $(tagged_pids) ]]; then
        say "cluster '$NAME' is not running"; return
    fi
    lock_cluster
    teardown || fail "cluster '$NAME' could not be stopped completely"
    exec {LOCK_FD}>&-
    say "stopped cluster '$NAME'"
}
