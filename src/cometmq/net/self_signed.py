"""A placeholder until the certificate code is in."""
