"""Delivery of delayed messages: `delay_levels` (ScheduleMessageService.java).

Not built: timer messages, whose delivery time is free (`timer_wheel`).
"""
