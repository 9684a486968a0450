#!/bin/sh
# A stand-in for Proxmox VE's pct: containers are folders under @BASE@/guests, entered with chroot.
# Faults are files under @BASE@/faults; their content is the value:
#   hang_push        pct push waits while the file exists
#   hang_exec        pct exec waits while the file exists, when the script contains the value
#   push_short       only this many bytes arrive, and the exit status is 0 all the same (as with the real one)
#   push_fail        nothing is written; the value goes to standard error and the status is 255
#   push_locked      fails as a locked container does, as many times as the value says
#   prepare_prints   pct exec prints the value instead of running the script that asks about the destination
#   stream_short     only this many bytes of standard input reach the script, and it ends well all the same
#   stream_fail      the value goes to standard error and the status is 1, after this script has read a little
#   stream_kill      the script is killed after this many bytes
#   exec_prints      pct exec prints the value instead of running a script that contains "openssl"
set -u
base='@BASE@'
verb=${1-} vmid=${2-}
echo "$verb $vmid $#" >>"$base/calls"
shift 2
root=$base/guests/$vmid
if [ ! -d "$root" ]; then
  echo "Configuration file 'nodes/pve1/lxc/$vmid.conf' does not exist" >&2
  exit 2
fi
running() {
  [ -e "$base/running/$vmid" ] && return
  case $verb in
    push) echo "can only push files to a running VM" >&2 ;;
    *) echo "container '$vmid' not running!" >&2 ;;
  esac
  exit 255
}
wait_while() {
  while [ -e "$1" ]; do
    sleep 0.02
  done
}
running
case $verb in
  exec)
    shift # --
    script=${3-}
    fault=$base/faults/hang_exec
    if [ -e "$fault" ]; then
      case $script in *"$(cat "$fault")"*) wait_while "$fault" ;; esac
      running
    fi
    if [ -e "$base/faults/exec_prints" ]; then
      case $script in *openssl*) cat "$base/faults/exec_prints"; exit 0 ;; esac
    fi
    if [ -e "$base/faults/prepare_prints" ]; then
      case $script in *no-parent*) cat "$base/faults/prepare_prints"; exit 0 ;; esac
    fi
    case $script in *'set -C'*)
      if [ -e "$base/faults/stream_fail" ]; then
        head -c 4096 >/dev/null
        cat "$base/faults/stream_fail" >&2
        exit 1
      fi
      if [ -e "$base/faults/stream_short" ]; then
        { head -c "$(cat "$base/faults/stream_short")"; cat >"$base/lost"; } | chroot "$root" /bin/"$@"
        exit
      fi
      if [ -e "$base/faults/stream_kill" ]; then
        head -c "$(cat "$base/faults/stream_kill")" | chroot "$root" /bin/"$@"
        kill -9 $$
      fi
      ;;
    esac
    exec chroot "$root" /bin/"$@"
    ;;
  push)
    source=$1 target=$2
    shift 2
    perms=0644 user=0 group=0
    while [ $# -gt 0 ]; do
      case $1 in
        --perms) perms=$2 ;;
        --user) user=$2 ;;
        --group) group=$2 ;;
        *) echo "Unknown option: $1" >&2; exit 255 ;;
      esac
      shift 2
    done
    if [ -e "$base/faults/push_locked" ]; then
      left=$(cat "$base/faults/push_locked")
      if [ "$left" -gt 0 ]; then
        echo $((left - 1)) >"$base/faults/push_locked"
        echo "can't lock file '/run/lock/lxc/pve-config-$vmid.lock' - got timeout" >&2
        exit 255
      fi
    fi
    wait_while "$base/faults/hang_push"
    if [ -e "$base/faults/push_fail" ]; then
      cat "$base/faults/push_fail" >&2
      exit 255
    fi
    limit=
    [ -e "$base/faults/push_short" ] && limit=$(cat "$base/faults/push_short")
    { if [ -n "$limit" ]; then head -c "$limit"; else cat; fi; } <"$source" |
      chroot "$root" /bin/sh -c 'cat >"$1" && chmod "$2" "$1" && chown "$3:$4" "$1"' push \
        "$target" "$perms" "$user" "$group"
    ;;
  *)
    echo "ERROR: unknown command 'pct $verb'" >&2
    exit 255
    ;;
esac
