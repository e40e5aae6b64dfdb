# shellcheck shell=bash
# Names of clusters and nodes, and Slurm's host list notation.

# The limits keep the path of slurmstepd's socket below the 108 bytes of an AF_UNIX address.
check_cluster_name() {
    [[ $1 =~ ^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$ ]] ||
        usage_error "cluster name '$1': use letters, digits and dashes"
    [[ ${#1} -le 16 ]] || usage_error "cluster name '$1' is longer than 16 characters"
}

check_node_name() {
    [[ $1 =~ ^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$ ]] ||
        usage_error "node name '$1': use letters, digits and dashes"
    [[ ${#1} -le 20 ]] || usage_error "node name '$1' is longer than 20 characters"
    [[ $1 != login && $1 != ctl && $1 != all && $1 != switch && $1 != localhost ]] ||
        usage_error "'$1' cannot be the name of a node"
}

# expand_hostlist 'a[0-1]b[00-01],c' -> a0b00 a0b01 a1b00 a1b01 c, one per line
expand_hostlist() {
    local item
    while IFS= read -r item; do expand_brackets "$item"; done < <(split_outside_brackets "$1")
}

split_outside_brackets() {
    local text=$1 depth=0 word='' i c
    for ((i = 0; i < ${#text}; i++)); do
        c=${text:i:1}
        case $c in '[') depth=1 ;; ']') depth=0 ;; esac
        if [[ $c == , && $depth -eq 0 ]]; then printf '%s\n' "$word"; word=''; else word+=$c; fi
    done
    printf '%s\n' "$word"
}

expand_brackets() {
    local text=$1 head body tail range number
    if [[ $text != *'['* ]]; then printf '%s\n' "$text"; return; fi
    head=${text%%'['*} body=${text#*'['}
    tail=${body#*']'} body=${body%%']'*}
    for range in ${body//,/ }; do
        [[ $range =~ ^[0-9]{1,6}(-[0-9]{1,6})?$ && $text == *']'* ]] ||
            { printf '%s\n' "[$range]"; return; }   # refused by check_node_name
        for number in $(padded_range "$range"); do expand_brackets "$head$number$tail"; done
    done
}

padded_range() {
    local first=${1%-*} last=${1#*-} i
    for ((i = 10#$first; i <= 10#$last; i++)); do printf "%0${#first}d\n" "$i"; done
}
