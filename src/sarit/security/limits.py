"""Fixed bounds and intervals of security, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

MIN_TOKEN_KEY_BYTES: Final = 32
MIN_PASSWORD_CHARACTERS: Final = 8
MAX_PASSWORD_BYTES: Final = 1024
# The parameters of argon2id: about 20 ms of a processor and 19 MiB for each password (OWASP's recommended minimum).
PASSWORD_HASH_MEMORY_KIB: Final = 19 * KIB
PASSWORD_HASH_PASSES: Final = 2
# How many checks of passwords may wait (about 0.6 s of a processor), and how many of users who logged in before.
MAX_PASSWORD_CHECKS: Final = 32
MAX_KNOWN_PASSWORD_CHECKS: Final = 256
MAX_AUTHORIZATION_BYTES: Final = 16 * KIB
# How many successful log-ins are cached; separately, failed log-ins; and users or networks with failed log-ins.
MAX_CACHED_LOGINS: Final = 4096
# How many networks from which a user has logged in are kept: of each user, and of all.
MAX_KNOWN_NETWORKS_OF_USER: Final = 256
MAX_KNOWN_NETWORKS: Final = 16_384
MAX_FAILED_LOGINS: Final = 10
# How many log-ins from one network may fail, whatever the names: about 2 s of a processor.
MAX_FAILED_LOGINS_OF_HOST: Final = 100
FAILED_LOGIN_SECONDS: Final = 60.0
# How far the clock of an identity provider may differ from ours, and how often its keys are fetched.
OIDC_LEEWAY_SECONDS: Final = 30
OIDC_REFRESH_SECONDS: Final = 300.0
# The least time between two fetches of the provider's keys, whatever keys tokens name.
OIDC_FETCH_INTERVAL_SECONDS: Final = 15.0
# How long a refused token is refused again without verification.
OIDC_REFUSED_SECONDS: Final = 5.0
OIDC_FETCH_SECONDS: Final = 10.0
MAX_OIDC_KEYS: Final = 64
MAX_OIDC_DOCUMENT_BYTES: Final = 256 * KIB
MIN_RSA_KEY_BITS: Final = 2048
MAX_OIDC_ROLES: Final = 256
# The audit log: the characters of a field; how often refusals that are alike get a line; how many kinds are counted.
MAX_AUDIT_CHARACTERS: Final = 256
AUDIT_REPEATED_SECONDS: Final = 60.0
MAX_AUDIT_REASONS: Final = 1000
AUDIT_QUEUE_BYTES: Final = 8 * MIB
AUDIT_CLOSE_SECONDS: Final = 5.0
# The length of the hash under which a log-in is cached.
LOGIN_KEY_BYTES: Final = 32
# -- quotas
MAX_QUOTA: Final = 1 << 60
# One read from a connection takes 256 KiB at most: at this rate the wait for it ends before clients give up on the
# connection.
MIN_QUOTA_BYTES_PER_SECOND: Final = 64 * KIB
QUOTA_BURST_SECONDS: Final = 0.5
# The longest wait of a quota: the largest append takes 512 s at the least rate.
QUOTA_DEBT_SECONDS: Final = 600.0
