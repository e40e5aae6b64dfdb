# shellcheck shell=bash
# Messages. Everything that is not the answer itself goes to stderr.

say()         { printf 'devcluster: %s\n' "$*" >&2; }
fail()        { say "$*"; exit 1; }
usage_error() { say "$*"; exit 2; }

# The last lines of a log, indented, to explain a failure.
show_tail() {
    local file=$1 lines=${2:-12}
    [[ -s $file ]] || { say "  (nothing in $file)"; return 0; }
    say "  last lines of $file:"
    tail -n "$lines" -- "$file" | sed 's/^/    /' >&2
}

json_string() {
    local s=$1
    s=${s//\\/\\\\} s=${s//\"/\\\"} s=${s//$'\t'/\\t} s=${s//$'\n'/\\n}
    printf '"%s"' "$s"
}
