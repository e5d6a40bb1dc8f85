"""Whole columns to payloads and back."""
