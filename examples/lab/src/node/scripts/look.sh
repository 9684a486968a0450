set -u
file=$1
if [ -d "$file" ]; then
  echo is-directory
elif [ ! -e "$file" ]; then
  echo missing
elif [ ! -f "$file" ]; then
  echo not-regular
elif [ ! -r "$file" ]; then
  echo unreadable
else
  size=$(wc -c <"$file") || exit 1
  echo "regular $((size))"
fi
