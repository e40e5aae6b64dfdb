# shellcheck shell=bash
# What a cluster was started with: the array P, kept in the file `params`.

declare -gA P=()

save_params() {
    local key
    for key in "${!P[@]}"; do printf 'P[%s]=%q\n' "$key" "${P[$key]}"; done | sort >"$STATE/params.new"
    mv "$STATE/params.new" "$STATE/params"
}

load_params() {
    P=()
    # shellcheck source=/dev/null
    . "$STATE/params"
}

# stored_param CLUSTER KEY: of another cluster, for values without special characters; nothing if that has just been stopped
stored_param() { sed -n "s/^P\[$2\]=//p" "$STATE_ROOT/$1/params" 2>/dev/null | tr -d "'" || true; }

configless() { [[ -n ${P[configless]-} ]]; }

ipv6_only() { [[ -n ${P[ipv6]-} ]]; }

single_host() { [[ ${P[mode]} == single-host ]]; }

is_node() { [[ " ${P[names]} " == *" $1 "* ]]; }

node_index() {
    local i=0 node
    for node in ${P[names]}; do
        i=$((i + 1))
        if [[ $node == "$1" ]]; then echo "$i"; return; fi
    done
    echo 0   # login
}

address_of() {
    if single_host; then echo 127.0.0.1; return; fi
    local ipv4
    ipv4=$(machine_address "${P[subnet]}" "$(node_index "$1")")
    if ipv6_only; then echo "fd00::$ipv4"; else echo "$ipv4"; fi
}
