#!/bin/sh
# Opens Greenroom by a double click in the Finder; Terminal shows what goes on.
here=$(cd "$(dirname "$0")" && pwd -P) || exit 1
exec "$here/../greenroom.sh"
