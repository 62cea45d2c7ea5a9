"""Who may come in, and what they may do: identities, permissions, delegation tokens, TLS, audit log."""
