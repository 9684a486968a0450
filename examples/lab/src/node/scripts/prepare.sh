set -u
dest=$1 overwrite=$2 mkdir=$3 need=$4 stale=$5
parent=${dest%/*}
[ -n "$parent" ] || parent=/
if [ ! -d "$parent" ]; then
  if [ "$mkdir" != 1 ] || ! mkdir -p -- "$parent"; then
    echo no-parent
    exit 0
  fi
fi
if [ "$stale" -gt 0 ]; then
  find "$parent" -maxdepth 1 -name '.pxw-????????????????????????????????.part' \
    -mmin "+$stale" -exec rm -rf -- {} \; 2>/dev/null
fi
if [ -d "$dest" ]; then
  echo is-directory
  exit 0
elif [ -e "$dest" ] || [ -L "$dest" ]; then
  if [ ! -f "$dest" ] || [ -L "$dest" ]; then
    echo not-regular
    exit 0
  elif [ "$overwrite" != 1 ]; then
    echo exists
    exit 0
  fi
fi
free=$(df -Pk "$parent" 2>/dev/null | { read -r skip && read -r skip skip skip free skip && echo "$free"; })
case $free in
'' | *[!0-9]*) echo ok ;;
*) if [ "$free" -lt "$need" ]; then echo no-space; else echo ok; fi ;;
esac
