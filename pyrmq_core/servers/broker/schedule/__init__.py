"""Delivery of messages with a delay level (ScheduleMessageService.java). `broker/timers` delivers at a given time."""
