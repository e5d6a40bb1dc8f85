"""Access control by users and policies, as in RocketMQ 5.x: functions and values without I/O.

Source: auth/authentication, auth/authorization (5.4.0).
"""
