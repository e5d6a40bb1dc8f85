"""Users and policies of 5.x, as plain functions and values. Source: auth/authentication, auth/authorization (5.4.0)."""
