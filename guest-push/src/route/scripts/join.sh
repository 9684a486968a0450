set -u
dir=$1 n=$2 to=$3
LC_ALL=C
export LC_ALL
umask 077
while [ "$n" -lt "$to" ]; do
  cat "$dir/$n" >>"$dir/data" || exit 1
  rm -f -- "$dir/$n"
  n=$((n + 1))
done
size=$(wc -c <"$dir/data") || exit 1
echo "$((size))"
