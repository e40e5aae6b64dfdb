# shellcheck shell=bash disable=SC2154
# The source tree, as build-deb and build-rpm need it; they set $root.

project_version() { sed -n 's/^project(amldist VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt"; }

copy_tree() { # copy_tree FOLDER: without what git ignores
    local folder=$1
    if git -C "$root" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$root" ls-files -z --cached --others --exclude-standard --deduplicate |
            (cd "$root" && while IFS= read -r -d '' name; do [[ ! -e $name ]] || printf '%s\0' "$name"; done) |
            tar -C "$root" --null --files-from=- -cf - | tar -C "$folder" -xf -
    else
        tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$folder" -xf -
    fi
}
