set -u
temp=$1 limit=$2 mode=$3 owner=$4
LC_ALL=C
export LC_ALL
bounded=
if timeout 5 true 2>/dev/null </dev/null; then
  bounded="timeout $limit"
fi
umask 077
set -C
$bounded cat >"$temp" || exit 1
if [ -n "$owner" ]; then
  chown -- "$owner" "$temp" || exit 1
fi
chmod -- "$mode" "$temp"
