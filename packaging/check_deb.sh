#!/usr/bin/env bash
# Does a .deb keep its promises? As root:
#
#     bash packaging/check_deb.sh greenroom_VERSION_ARCH.deb NEW-FOLDER
#
# NEW-FOLDER becomes a bare Debian (debootstrap, unless it holds one already). There the package is installed with what
# it depends on, its desktop files are validated, its programs run with an empty environment as a user who owns nothing,
# and after it was removed nothing of it may be left.
set -euo pipefail
deb=$(realpath "$1") root=$2 suite=${SUITE:-stable}

if [ ! -x "$root/usr/bin/dpkg" ]; then
    debootstrap --variant=minbase "$suite" "$root"
fi
root=$(realpath "$root")
bare() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
unmount() { umount "$root/proc" "$root/dev/shm" 2>/dev/null || true; }
trap unmount EXIT
mkdir -p "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"

cp "$deb" "$root/greenroom.deb"
bare apt-get update -q >/dev/null
# what it needs first, so that the list of files before differs from the one after by the package alone
needs=$(dpkg-deb --field "$deb" Depends | sed 's/([^)]*)//g; s/,//g')
# shellcheck disable=SC2086
bare apt-get install -yq --no-install-recommends $needs >/dev/null
files() { (cd "$root" && find . -xdev \( -path ./tmp -o -path ./home -o -path ./var/log -o -path ./var/cache -o -path ./proc \) -prune -o -print | sort); }
files >"$root/tmp/before"

echo "== install"
bare dpkg --install /greenroom.deb
bare dpkg --verify greenroom
bare dpkg --status greenroom | grep -E '^(Status|Version|Installed-Size)'

echo "== desktop files"
desktop-file-validate "$root/usr/share/applications/greenroom.desktop"
appstreamcli validate --no-net "$root"/usr/share/metainfo/*greenroom*.xml
icon=$(sed -n 's/^Icon=//p' "$root/usr/share/applications/greenroom.desktop")
ls "$root/usr/share/icons/hicolor/"*/apps/"$icon".*
command=$(sed -n 's/^Exec=\([^ ]*\).*/\1/p' "$root/usr/share/applications/greenroom.desktop")
test -x "$root/usr/bin/$command"

echo "== start"
if bare sh -c 'command -v python3 python'; then
    echo "There is a Python in $root, which proves nothing." >&2
    exit 1
fi
install -d -o 65534 -g 65534 "$root/tmp/user"
user() {
    chroot --userspec=65534:65534 "$root" /usr/bin/env -i HOME=/tmp/user QT_QPA_PLATFORM=offscreen "$@"
}
user /usr/bin/greenroom --version
user /usr/bin/greenroom-engine --version
user /usr/bin/greenroom --self-test /tmp/user/report
grep '^  "[el]' "$root/tmp/user/report/report.json"

echo "== remove"
bare dpkg --purge greenroom
files >"$root/tmp/after"
if ! diff <(grep -v -e '^./var/lib/dpkg' "$root/tmp/before") <(grep -v -e '^./var/lib/dpkg' "$root/tmp/after"); then
    echo "The package left something behind." >&2
    exit 1
fi
echo "Nothing is left."
