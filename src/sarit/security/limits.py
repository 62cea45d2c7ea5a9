"""Fixed bounds and intervals of security, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

MIN_TOKEN_KEY_BYTES: Final = 32
MIN_PASSWORD_CHARACTERS: Final = 8
MAX_PASSWORD_BYTES: Final = 1024
# argon2id: about 20 ms of a processor, and 19 MiB, for each password (the least that OWASP recommends).
PASSWORD_HASH_MEMORY_KIB: Final = 19 * KIB
PASSWORD_HASH_PASSES: Final = 2
# Checks of passwords that wait: about 0.6 s of a processor; and those of users who were right before.
MAX_PASSWORD_CHECKS: Final = 32
MAX_KNOWN_PASSWORD_CHECKS: Final = 256
MAX_AUTHORIZATION_BYTES: Final = 16 * KIB
# Right log-ins that are cached, and apart from them wrong ones, and users or networks with wrong ones.
MAX_CACHED_LOGINS: Final = 4096
# Networks that users were right from: of each, and of all.
MAX_KNOWN_NETWORKS_OF_USER: Final = 256
MAX_KNOWN_NETWORKS: Final = 16_384
MAX_FAILED_LOGINS: Final = 10
# From one network, whatever the names: about 2 s of a processor.
MAX_FAILED_LOGINS_OF_HOST: Final = 100
FAILED_LOGIN_SECONDS: Final = 60.0
# Tokens of an identity provider: how far its clock may differ from ours, and how its keys are fetched.
OIDC_LEEWAY_SECONDS: Final = 30
OIDC_REFRESH_SECONDS: Final = 300.0
# The least time between two fetches, whatever keys tokens name.
OIDC_FETCH_INTERVAL_SECONDS: Final = 15.0
# How long a refused token is refused without being verified.
OIDC_REFUSED_SECONDS: Final = 5.0
OIDC_FETCH_SECONDS: Final = 10.0
MAX_OIDC_KEYS: Final = 64
MAX_OIDC_DOCUMENT_BYTES: Final = 256 * KIB
MIN_RSA_KEY_BITS: Final = 2048
MAX_OIDC_ROLES: Final = 256
# The audit log: characters of a field, lines of refusals that are alike, and how many kinds of these are known.
MAX_AUDIT_CHARACTERS: Final = 256
AUDIT_REPEATED_SECONDS: Final = 60.0
MAX_AUDIT_REASONS: Final = 1000
AUDIT_QUEUE_BYTES: Final = 8 * MIB
AUDIT_CLOSE_SECONDS: Final = 5.0
# Of the hash under which a log-in is cached.
LOGIN_KEY_BYTES: Final = 32
# -- quotas
MAX_QUOTA: Final = 1 << 60
# A read of a connection brings 256 KiB at most: it is paid for before a client takes its connection for dead.
MIN_QUOTA_BYTES_PER_SECOND: Final = 64 * KIB
QUOTA_BURST_SECONDS: Final = 0.5
# A debt is paid, however large the append was: the longest takes 512 s at the least rate.
QUOTA_DEBT_SECONDS: Final = 600.0
