#!/bin/sh
# Copies the files of some Debian packages to a folder that becomes the root of an image: root.sh FOLDER PACKAGE...
# An image needs no package manager and no Perl. Scanners find the packages' names in dpkg/status.d. Left out: manuals,
# tables of characters (Python and Java have their own), and parts of Python that only developers use.
set -eu
root="$1"
shift
for folder in bin sbin lib lib64; do
  mkdir -p "$root/usr/$folder"
  ln -s "usr/$folder" "$root/$folder"
done
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/etc/ssl" "$root/var/lib/dpkg/status.d"
install -d -m 1777 "$root/tmp" "$root/var/tmp"

for package in "$@"; do
  dpkg -s "$package" >"$root/var/lib/dpkg/status.d/$package"
done
dpkg -L "$@" | sort -u | while read -r path; do
  if [ -f "$path" ] || { [ -L "$path" ] && [ ! -d "$path" ]; }; then echo "$path"; fi
done | grep -vE '/gconv/|/_codecs_|/tini-static$|^/usr/share/(man|info|locale|lintian|bug|perl5|debconf|zoneinfo|bash-completion)/|^/usr/share/doc/.*/(changelog|NEWS|README)|^/usr/lib/python3.*/(test|lib2to3|distutils|idlelib|tkinter|pydoc_data|ensurepip)/' |
  tar -cf - --no-recursion -T - 2>/dev/null | tar -xf - -C "$root" --keep-directory-symlink
cp -a /etc/passwd /etc/group /etc/ld.so.cache /etc/nsswitch.conf "$root/etc/"
cp -a /etc/ssl/certs "$root/etc/ssl/"

# Whoever built against a library that isn't there would notice only when it is called.
lacking="$(find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec chroot "$root" /lib64/ld-linux-x86-64.so.2 --list {} \; 2>/dev/null | grep 'not found' || true)"
[ -z "$lacking" ] || { echo "$lacking" >&2; exit 1; }
