"""Authentication and authorization: identities, permissions, delegation tokens, TLS, audit log."""
