"""Delivery of delayed messages: `delay_levels` (ScheduleMessageService.java).

Timer messages, which have a delivery time instead of a level, are in `broker/timers`.
"""
