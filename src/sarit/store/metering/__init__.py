"""What segments, scopes and users are measured and charged."""
