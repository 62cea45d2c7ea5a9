"""Fixed bounds and intervals of security, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

MIN_TOKEN_KEY_BYTES: Final = 32
DEFAULT_TOKEN_SECONDS: Final = 600
# Official clients renew a token 5 s before it expires: with less, at each use.
MIN_TOKEN_SECONDS: Final = 5
MAX_TOKEN_BYTES: Final = 8 * KIB
# Of a connection: tokens whose signature was verified.
MAX_VERIFIED_TOKENS: Final = 256
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
# Its file, and the older ones that are kept beside it.
AUDIT_FILE_BYTES: Final = 64 * MIB
AUDIT_FILES_KEPT: Final = 8
# How often the files of users, keys and certificates are read again, if they have changed.
SECURITY_FILES_INTERVAL_SECONDS: Final = 5.0
# A token is renewed when so much of its life has passed.
TOKEN_RENEWAL: Final = 0.8
MAX_CACHED_TOKENS: Final = 4096
# How long a rule that another controller has changed may stay unknown here.
RULES_INTERVAL_SECONDS: Final = 2.0
MAX_RULES: Final = 10_000
# Of the hash under which a log-in is cached.
LOGIN_KEY_BYTES: Final = 32
# -- quotas
MAX_QUOTAS: Final = 1000
MAX_QUOTA: Final = 1 << 60
# A read of a connection brings 256 KiB at most: it is paid for before a client takes its connection for dead.
MIN_QUOTA_BYTES_PER_SECOND: Final = 64 * KIB
QUOTA_BURST_SECONDS: Final = 0.5
# A debt is paid, however large the append was: the longest takes 512 s at the least rate.
QUOTA_DEBT_SECONDS: Final = 600.0
# A read that is over a quota for so long is answered without bytes: clients take a read without an answer for lost.
QUOTA_READ_WAIT_SECONDS: Final = 8.0
# Between two looks at a quota: meanwhile the rate lends for as long.
QUOTA_TURN_SECONDS: Final = 0.02
# Requests of this size and less are not charged to a quota; appends are.
QUOTA_COUNTED_BYTES: Final = 1 * KIB
# How long a quota that another controller has changed may stay unknown, and how often stores get them.
QUOTA_INTERVAL_SECONDS: Final = 2.0
# How often the bytes of scopes with a quota of storage are counted.
QUOTA_MEASURE_SECONDS: Final = 30.0
# A scope that is full may write again when so much of its quota is used.
QUOTA_FULL_UNTIL: Final = 0.98
# Scopes and users that have been charged and are remembered: the oldest without a debt are forgotten.
MAX_CHARGED: Final = 4096
