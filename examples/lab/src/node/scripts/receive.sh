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
: >"$temp" || exit 1
set +C
hash=
if command -v openssl >/dev/null 2>&1 && openssl dgst -sha256 -r </dev/null >/dev/null 2>&1; then
  hash='openssl dgst -sha256 -r'
elif command -v sha256sum >/dev/null 2>&1; then
  hash=sha256sum
elif command -v busybox >/dev/null 2>&1; then
  hash='busybox sha256sum'
fi
follow() {
  at=0
  nap=0.01
  while kill -0 "$1"; do
    last=
    [ ! -x "$temp" ] || last=1
    size=$(stat -c %s "$temp") || return 1
    blocks=$((size / 1048576 - at))
    if [ "$blocks" -ge 32 ]; then
      dd if="$temp" bs=1048576 skip="$at" count="$blocks" || return 1
      at=$((at + blocks))
      nap=0.01
    elif [ "$last" ]; then
      dd if="$temp" bs=1048576 skip="$at"
      return
    else
      sleep "$nap" || sleep 1 || return 1
      nap=0.1
    fi
  done
}
follower=
if [ "$hash" ] && command -v dd >/dev/null && command -v sleep >/dev/null && [ ! -x "$temp" ] && [ "$(stat -c %s "$temp" 2>/dev/null)" = 0 ]; then
  { follow $$ 2>/dev/null | $bounded $hash 2>/dev/null; } &
  follower=$!
fi
$bounded cat >>"$temp"
status=$?
if [ "$follower" ]; then
  chmod 700 "$temp" && [ -x "$temp" ] && wait "$follower" && echo "$(($(stat -c %s "$temp")))"
fi
[ "$status" = 0 ] || exit 1
if [ -n "$owner" ]; then
  chown -- "$owner" "$temp" || exit 1
fi
chmod -- "$mode" "$temp"
