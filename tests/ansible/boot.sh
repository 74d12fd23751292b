# Makes the root of one host and becomes its systemd: bash boot.sh NAME BASE DIRECTORY [SOURCE:TARGET…]
#
# Runs inside the namespaces that hosts.py has made. BASE is a Debian root that all hosts share, unchanged; DIRECTORY has
# what is this host's own; each SOURCE is bound read-only at TARGET. Nothing of the machine around can be changed from here:
# /sys and /proc/sys are read-only but for the network's, which is this host's own.
set -eu
name=$1 base=$2 directory=$3
shift 3
root=$directory/root

mount --make-rprivate /
mkdir -p "$directory/upper" "$directory/work" "$root"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$directory/upper,workdir=$directory/work" "$root"
for bind in "$@"; do
    mkdir -p "$root${bind#*:}"
    mount --bind "${bind%%:*}" "$root${bind#*:}"
    mount -o remount,bind,ro "$root${bind#*:}"
done

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
hostname "$name"

cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
exec env -i container=unshare PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin /lib/systemd/systemd
