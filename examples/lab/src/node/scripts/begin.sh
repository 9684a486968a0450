set -u
umask 077
mkdir -- "$1"
