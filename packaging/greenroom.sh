#!/bin/sh
# Opens Greenroom on Linux and macOS, from a menu or by a double click: finds a Python that is new enough and hands over
# to start.py. What follows on the command line goes there too.
file=$0
while [ -h "$file" ]; do # a link to it may lie anywhere
    target=$(readlink "$file")
    case $target in
        /*) file=$target ;;
        *) file=$(dirname "$file")/$target ;;
    esac
done
here=$(cd "$(dirname "$file")" && pwd -P) || exit 1

# Desktops start programs with a short PATH; these are where people and package managers put Python.
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/opt/homebrew/bin:$HOME/.local/bin
for folder in /Library/Frameworks/Python.framework/Versions/*/bin; do
    [ -d "$folder" ] && PATH=$PATH:$folder
done

for python in python3.13 python3.12 python3.11 python3 python3.14; do
    command -v "$python" >/dev/null 2>&1 || continue
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$python" "$here/start.py" "$@"
    fi
done

text="Greenroom needs Python 3.11 or newer, which was not found here. Install it with your system's program for \
software, or from python.org, then open Greenroom again."
echo "$text" >&2
[ -t 2 ] && exit 1
if command -v osascript >/dev/null 2>&1; then
    osascript -e 'on run words' -e 'display alert (item 1 of words)' -e 'end run' "$text"
elif command -v zenity >/dev/null 2>&1; then
    zenity --error --no-markup --width=480 --title=Greenroom --text="$text"
elif command -v kdialog >/dev/null 2>&1; then
    kdialog --title Greenroom --error "$text"
elif command -v xmessage >/dev/null 2>&1; then
    xmessage -center "$text"
elif command -v notify-send >/dev/null 2>&1; then
    notify-send --app-name=Greenroom Greenroom "$text"
fi
exit 1
