set -u
temp=$1 mode=$2 owner=$3
LC_ALL=C
export LC_ALL
if [ -n "$owner" ]; then
  chown -- "$owner" "$temp" || exit 1
fi
chmod -- "$mode" "$temp"
