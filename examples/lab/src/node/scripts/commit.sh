set -u
temp=$1 dest=$2 overwrite=$3
if [ -d "$dest" ]; then
  echo is-directory
elif [ "$overwrite" = 1 ]; then
  mv -f -- "$temp" "$dest" && echo ok
elif ln -- "$temp" "$dest" 2>/dev/null; then
  rm -f -- "$temp"
  echo ok
elif [ -e "$dest" ] || [ -L "$dest" ]; then
  echo exists
else
  mv -n -- "$temp" "$dest"
  if [ -e "$temp" ]; then
    echo exists
  else
    echo ok
  fi
fi
