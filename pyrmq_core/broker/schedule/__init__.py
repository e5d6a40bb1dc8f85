"""Delivery of delayed messages: `delay_levels` (ScheduleMessageService.java).

Not built: timer messages, which are delivered at any time (`timer_wheel`).
"""
