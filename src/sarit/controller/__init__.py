"""The controller: streams, scopes, transactions, reader groups; pure decisions and what carries them out."""
