# shellcheck shell=bash

help_status() {
    cat <<'HELP'
devcluster status [--name NAME] [--json]
devcluster list

Prints daemons, nodes, states and addresses. Exit status 0 if all are healthy, 1 if not.
HELP
}

cmd_status() {
    parse_options 'name= json' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_status; return; fi
    [[ ${#REST[@]} -eq 0 ]] || usage_error "status: unexpected '${REST[0]}'"
    need_cluster "${OPT[name]-}"
    gather_status
    if [[ -n ${OPT[json]-} ]]; then print_json; else print_status; fi
    [[ -z $UNHEALTHY ]]
}

declare -gA UP=() STATE_OF=() BROKEN=()
UNHEALTHY=''

gather_status() {
    local daemon node state
    UNHEALTHY='' UP=() STATE_OF=() BROKEN=()
    for daemon in $(daemon_names); do
        UP[$daemon]=up
        daemon_alive "$daemon" || { UP[$daemon]=down; UNHEALTHY+=" $daemon"; }
    done
    while read -r node state; do STATE_OF[$node]=$state; done < <(node_states)
    for node in login ${P[names]}; do
        BROKEN[$node]=$(broken_ways "$node")
        if [[ -n ${BROKEN[$node]} ]]; then UNHEALTHY+=" $node"; fi
    done
    # shellcheck disable=SC2086  # a list of names
    nodes_ready ${P[names]} || UNHEALTHY+=$NOT_READY
}

print_status() {
    local node
    echo "cluster $NAME (${P[mode]}), Slurm $(slurm_version)${P[subnet]:+, subnet ${P[subnet]}}"
    echo "plugin ${P[plugin]:-none}${P[plugin]:+ (${P[plugin_mode]}) ${P[plugin_args]}}"
    printf '%-20s %-15s %-10s %-12s %s\n' MACHINE ADDRESS DAEMON STATE BROKEN
    printf '%-20s %-15s %-10s %-12s %s\n' login "$(address_of login)" "slurmctld" "${UP[slurmctld]}" "${BROKEN[login]}"
    printf '%-20s %-15s %-10s %-12s %s\n' login "$(address_of login)" munged "${UP[munged]}" ''
    for node in ${P[names]}; do
        printf '%-20s %-15s %-10s %-12s %s\n' "$node" "$(address_of "$node")" slurmd \
            "${UP[$node]},${STATE_OF[$node]-unknown}" "${BROKEN[$node]}"
    done
    echo "${UNHEALTHY:+not }healthy"
}

print_json() {
    local node separator='' healthy=true
    [[ -z $UNHEALTHY ]] || healthy=false
    printf '{"name":%s,"mode":%s,"healthy":%s,"slurm":%s,"subnet":%s,"slurm_conf":%s,"plugin":%s,' \
        "$(json_string "$NAME")" "$(json_string "${P[mode]}")" "$healthy" "$(json_string "$(slurm_version)")" \
        "$(json_string "${P[subnet]}")" "$(json_string "$STATE/slurm/slurm.conf")" "$(json_string "${P[plugin]}")"
    printf '"controller":{"host":"login","address":%s,"slurmctld":"%s","munged":"%s"},"nodes":[' \
        "$(json_string "$(address_of login)")" "${UP[slurmctld]}" "${UP[munged]}"
    for node in ${P[names]}; do
        printf '%s{"name":"%s","address":"%s","slurmd":"%s","state":"%s","broken":"%s"}' "$separator" \
            "$node" "$(address_of "$node")" "${UP[$node]}" "${STATE_OF[$node]-unknown}" "${BROKEN[$node]}"
        separator=,
    done
    echo ']}'
}

cmd_list() {
    local name health
    parse_options '' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_status; return; fi
    for name in $(cluster_names); do
        use_cluster "$name"
        if [[ ! -f $STATE/params ]]; then printf '%-16s %s\n' "$name" 'left over (devcluster stop)'; continue; fi
        load_params
        gather_status
        health=healthy
        [[ -z $UNHEALTHY ]] || health='not healthy'
        printf '%-16s %-12s %-18s %3d nodes  %s\n' "$name" "${P[mode]}" "${P[subnet]:--}" \
            "$(wc -w <<<"${P[names]}")" "$health"
    done
}
