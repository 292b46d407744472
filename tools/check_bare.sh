#!/usr/bin/env bash
# Runs the demo on a bare Debian 12: debootstrap's minimal system in a chroot, with a clone of the last commit. As root;
# needs debootstrap and 8 GB of disk. The chroot is removed at the end.
#
#   tools/check_bare.sh [--tests] [--mirror URL] [--folder DIR]
#
# --tests runs tools/test.sh after the demo. --mirror defaults to the one that this machine's apt takes bookworm from.
# --folder is where the chroot is made (default: a temporary folder).
set -euo pipefail
cd "$(dirname "$0")/.."
tests=false mirror="" folder=""
while [ $# -gt 0 ]; do
  case $1 in
    --tests) tests=true ;;
    --mirror) mirror=${2:?"--mirror needs a URL"}; shift ;;
    --folder) folder=${2:?"--folder needs a folder"}; shift ;;
    *) echo "$0: unknown option '$1'" >&2; exit 1 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || { echo "$0: must run as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "$0: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

apt_mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -1; }
[ -n "$mirror" ] || mirror=$(apt_mirror)
[ -n "$mirror" ] || { echo "$0: apt knows no mirror of bookworm: give --mirror URL" >&2; exit 1; }

root=$(mktemp -d "${folder:-${TMPDIR:-/tmp}}/onnxtrain-bare.XXXXXX")
chmod 755 "$root"  # for the user that apt downloads as
trap 'rm -rf --one-file-system "$root"' EXIT

# Gives the chroot this machine's mirror and its way there: proxies and checks of dates.
configure_apt() {
  echo "deb $mirror bookworm main" >"$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(https?|Retries|Check)' >"$root/etc/apt/apt.conf.d/99host" || true
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
}

# Runs a command in the clone. Mounts are private to it and end with it, as do its processes.
in_chroot() {
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    mount --rbind /dev "$0/dev"
    mount -t proc proc "$0/proc"
    mount -t sysfs sysfs "$0/sys"
    exec chroot "$0" /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /onnxtrain && $1"' "$root" "$1"
}

debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || { cat "$root.log" >&2; exit 1; }
rm -f "$root.log"
configure_apt
git clone -q --no-hardlinks . "$root/onnxtrain"

in_chroot tools/setup.sh
SECONDS=0
in_chroot tools/demo.sh
echo "demo without the installation of packages: $SECONDS s"
if $tests; then
  in_chroot tools/test.sh
  echo "demo and tests: $SECONDS s"
fi
