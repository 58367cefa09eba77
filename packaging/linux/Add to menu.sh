#!/bin/sh
# Sets Greenroom up and adds it to your own menu of programs, by a double click.
here=$(cd "$(dirname "$0")" && pwd -P) || exit 1
exec "$here/../greenroom.sh" --window install
