set -u
file=$1
size=$(wc -c <"$file") || exit 1
if command -v openssl >/dev/null 2>&1 && sum=$(openssl dgst -sha256 -r <"$file" 2>/dev/null); then
  :
elif command -v sha256sum >/dev/null 2>&1 && sum=$(sha256sum <"$file"); then
  :
elif command -v busybox >/dev/null 2>&1 && sum=$(busybox sha256sum <"$file"); then
  :
else
  sum=none
fi
echo "${sum%% *} $((size))"
