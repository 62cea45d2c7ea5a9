#!/bin/sh
# Starts `sarit` with the arguments of the container.  NAME_FILE=PATH sets the variable NAME to what the file holds, for
# secrets that an engine mounts as files.
set -eu

for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        if ! value=$(cat "$file"); then
            echo "sarit-entrypoint: ${name}_FILE names $file, which cannot be read" >&2
            exit 2
        fi
        export "$name=$value"
        unset "${name}_FILE"
    fi
done
exec sarit "$@"
