#!/bin/sh
# Creates the seed corpora from the golden vectors, so that every target starts from valid input,
# and from the inputs that were kept.
# Requires POSIX tools and basenc (coreutils 8.31).
set -eu
cd "$(dirname "$0")"

# Prints the bytes of a vector.
bytes() {
    grep -v '^#' "$1" | tr -d ' \n' | tr a-f A-F | basenc --base16 --decode
}

for target in attach_request control_decode data_header filter_rules frame_reader journal_replay \
    ledgers probe receiver_session sender_session; do
    mkdir -p "corpus/$target"
done
printf -- '+ *.c\n-! /a/**/[!b-d]?\n:e- .rules\nhide x***\n\na/b.c\ndir/x\n' >corpus/filter_rules/rules
for file in ../spec/vectors/*.hex; do
    name=$(basename "$file" .hex)
    case $name in
    attach-request) bytes "$file" >"corpus/attach_request/$name" ;;
    attach-* | stream-key | hashes-*) ;;
    probe | probe-*) bytes "$file" >"corpus/probe/$name" ;;
    data-*) bytes "$file" >"corpus/data_header/$name" ;;
    frames-*) bytes "$file" >"corpus/data_header/$name" ;;
    pack-payload)
        # Header first.
        { bytes ../spec/vectors/data-pack.hex && bytes "$file"; } >"corpus/data_header/$name"
        ;;
    journal)
        # Boot ID first, 16 bytes: that of the journal, and another one.
        { bytes "$file" | tail -c +41 | head -c 16 && bytes "$file"; } >"corpus/journal_replay/$name"
        { head -c 16 /dev/zero && bytes "$file"; } >"corpus/journal_replay/$name-other-boot"
        ;;
    *)
        # A frame: without the prefix, after a byte for the chunk size, and as is.
        bytes "$file" | tail -c +5 >"corpus/control_decode/$name"
        { printf '\003' && bytes "$file"; } >"corpus/frame_reader/$name"
        bytes "$file" >"corpus/ledgers/$name"
        bytes "$file" >"corpus/receiver_session/$name"
        { printf '\001' && bytes "$file"; } >"corpus/sender_session/$name"
        { printf '\201' && bytes "$file"; } >"corpus/sender_session/$name-dry-run"
        ;;
    esac
done
# Sequences of messages, one for each side.
for side in "wants acks nack finished failed stream-ended" "entries holes file-digest aborted"; do
    for name in $side; do
        bytes "../spec/vectors/$name.hex"
    done >"corpus/ledgers/of-$(echo "$side" | tr ' ' '-')"
done
for kept in kept/*.hex; do
    target=$(basename "$kept" .hex)
    number=0
    while read -r line; do
        number=$((number + 1))
        echo "$line" | tr a-f A-F | basenc --base16 --decode >"corpus/$target/kept-$number"
    done <"$kept"
done
