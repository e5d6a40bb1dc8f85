"""Delivery of messages with a delay level (ScheduleMessageService.java). Those with a delivery time are in
`broker/timers`.
"""
