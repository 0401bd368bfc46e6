#!/bin/sh
# Keeps the inputs of a target's corpus that together reach all it reaches, without the long ones.
#
#   fuzz/keep.sh TARGET   with the fuzz targets built as the README says
set -eu
target=${1:?give a target}
cd "$(dirname "$0")"
program=${CARGO_TARGET_DIR:-target}/$(rustc --print host-tuple)/release/$target

few=$(mktemp -d)
trap 'rm -rf "$few"' EXIT
"$program" -merge=1 -max_len=2048 "$few" "corpus/$target"
mkdir -p kept
for file in "$few"/*; do
    if [ "$(stat -c %s "$file")" -le 512 ]; then
        od -An -v -tx1 "$file" | tr -d ' \n'
        echo
    fi
done | sort -u >"kept/$target.hex"
