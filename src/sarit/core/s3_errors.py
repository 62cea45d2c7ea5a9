"""What an error of an S3 server means to the person who runs a node.  Pure.

The libraries give the response as text, with S3's error code in it.  A few of the codes are mistakes of the setup,
which no retry mends: for these there is a sentence that says what to do.
"""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_CREDENTIALS: Final = (
    "the object store refuses that: are the credentials right (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), and may they "
    "read, write and delete there?"
)
_ADVICE: Final = {
    "AccessDenied": _CREDENTIALS,
    "AuthorizationHeaderMalformed": "the region is wrong: check AWS_REGION",
    "ExpiredToken": "the credentials have expired: check AWS_SESSION_TOKEN",
    "InvalidAccessKeyId": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "NoSuchBucket": "there is no such bucket: create it, or correct the address",
    "PermanentRedirect": "the bucket is in another region: check AWS_REGION",
    "RequestTimeTooSkewed": "the clocks of this machine and of the server differ: synchronize them",
    "SignatureDoesNotMatch": _CREDENTIALS,
    "SlowDown": "the server asks for fewer requests; they are repeated later",
    "XAdminUserNotFound": _CREDENTIALS,
}
# Where the libraries ask for the role of a machine of the provider, if no key is given.
_MACHINE_ROLE: Final = "//169.254.169.254/"
_NO_CREDENTIALS: Final = (
    "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them the role of "
    "this machine is asked for, and that failed"
)
# Of a 404 that is about the object.  Some servers give no code, or no body.
_MISSING: Final = frozenset(("", "NoSuchKey", "NoSuchVersion", "NotFound"))


def code_of(text: str) -> str:
    """Return S3's error code in the text of an error; "" when there is none."""
    found = _CODE.search(text)
    return found[1] if found else ""


def is_missing_object(text: str) -> bool:
    """Return whether a response "404 Not Found" is about the object, and not about the bucket or the user."""
    return code_of(text) in _MISSING


def is_explained(text: str) -> bool:
    """Return whether there is a sentence about the code of an error."""
    return code_of(text) in _ADVICE


def explained(text: str) -> str:
    """Return the first line of an error's text, or what to do about it and the code."""
    code = code_of(text)
    if code in _ADVICE:
        return f"{_ADVICE[code]} ({code})"
    first = text.partition("\n")[0]
    if _MACHINE_ROLE in text:
        return f"{_NO_CREDENTIALS}: {first}"
    return f"{first} ({code})" if code and code not in first else first
