set -u
dest=$1 overwrite=$2 mkdir=$3
parent=${dest%/*}
[ -n "$parent" ] || parent=/
if [ ! -d "$parent" ]; then
  if [ "$mkdir" != 1 ] || ! mkdir -p -- "$parent"; then
    echo no-parent
    exit 0
  fi
fi
if [ -d "$dest" ]; then
  echo is-directory
elif [ -e "$dest" ] || [ -L "$dest" ]; then
  if [ ! -f "$dest" ] || [ -L "$dest" ]; then
    echo not-regular
  elif [ "$overwrite" != 1 ]; then
    echo exists
  else
    echo ok
  fi
else
  echo ok
fi
