"""Tests of conversations, one file each as in the protocol room."""
