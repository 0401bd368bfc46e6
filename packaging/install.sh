#!/bin/sh
# Installs bankfull from this directory, or removes it.
#
#   ./install.sh [--prefix DIR]               DIR: /usr/local; ~/.local for a user without root
#   ./install.sh --uninstall [--prefix DIR]
set -eu
cd "$(dirname "$0")"
fail() { echo "install.sh: $*" >&2; exit 1; }
prefix=/usr/local
[ "$(id -u)" -eq 0 ] || prefix=$HOME/.local
action=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -ge 2 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) action=uninstall ;;
        *) fail "unknown argument $1: usage: ./install.sh [--uninstall] [--prefix DIR]" ;;
    esac
    shift
done
case $prefix in /*) ;; *) fail "--prefix $prefix is relative: write it from / on" ;; esac

# Each file of the archive, with its place.
places() {
    echo "bankfull bin/bankfull 755"
    for page in man/*.1; do echo "$page share/man/man1/${page##*/} 644"; done
    echo "completions/bankfull.bash share/bash-completion/completions/bankfull 644"
    echo "completions/_bankfull share/zsh/site-functions/_bankfull 644"
    echo "completions/bankfull.fish share/fish/vendor_completions.d/bankfull.fish 644"
}

if [ "$action" = uninstall ]; then
    places | while read -r _ place _; do rm -f "$prefix/$place"; done
    echo "removed from $prefix; settings and tokens of users stay"
    exit
fi
sha256sum -c SHA256SUMS >/dev/null || fail "a file is damaged: fetch the archive again"
places | while read -r file place mode; do
    install -D -m "$mode" "$file" "$prefix/$place" || exit 1
done || fail "cannot write to $prefix: choose another directory with --prefix"
echo "installed $("$prefix/bin/bankfull" --version) in $prefix"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "add it to the search path: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
