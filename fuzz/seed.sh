#!/bin/sh
# Makes the seed corpora from the golden vectors: every target starts from bytes that are right.
# Needs nothing but POSIX tools and basenc (coreutils 8.31).
set -eu
cd "$(dirname "$0")"

# The bytes of a vector.
bytes() {
    grep -v '^#' "$1" | tr -d ' \n' | tr a-f A-F | basenc --base16 --decode
}

for target in attach_request books control_decode data_header frame_reader journal_replay probe; do
    mkdir -p "corpus/$target"
done
for file in ../spec/vectors/*.hex; do
    name=$(basename "$file" .hex)
    case $name in
    attach-request) bytes "$file" >"corpus/attach_request/$name" ;;
    attach-* | stream-key | hashes-*) ;;
    probe | probe-*) bytes "$file" >"corpus/probe/$name" ;;
    data-*) bytes "$file" >"corpus/data_header/$name" ;;
    frames-*) bytes "$file" >"corpus/data_header/$name" ;;
    pack-payload)
        # With its header in front.
        { bytes ../spec/vectors/data-pack.hex && bytes "$file"; } >"corpus/data_header/$name"
        ;;
    journal)
        # Sixteen bytes of boot identity in front: the journal's own, and another.
        { bytes "$file" | tail -c +41 | head -c 16 && bytes "$file"; } >"corpus/journal_replay/$name"
        { head -c 16 /dev/zero && bytes "$file"; } >"corpus/journal_replay/$name-elsewhere"
        ;;
    *)
        # A frame: its body for the one, one byte of step in front for the other.
        bytes "$file" | tail -c +5 >"corpus/control_decode/$name"
        { printf '\003' && bytes "$file"; } >"corpus/frame_reader/$name"
        bytes "$file" >"corpus/books/$name"
        ;;
    esac
done
# Whole conversations, one for each side.
for side in "wants acks nack finished failed stream-ended" "entries holes sealed aborted"; do
    for name in $side; do
        bytes "../spec/vectors/$name.hex"
    done >"corpus/books/of-$(echo "$side" | tr ' ' '-')"
done
